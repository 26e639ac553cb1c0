/* term.c - the terminal: colour or not, width, padding, bars, heat. */
#include "cli.h"

#include "attn/viz.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int positive_int(const char *text)
{
    char *end;
    long value = text ? strtol(text, &end, 10) : 0;
    return text && *text && !*end && value > 0 && value < 100000 ? (int)value : 0;
}

cli_term cli_term_of(FILE *stream)
{
    cli_term term = {false, positive_int(getenv("COLUMNS"))};
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
    struct winsize size;
    bool terminal = isatty(fileno(stream)) == 1;
    if (term.width == 0 && terminal && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0)
        term.width = size.ws_col;
    if (term.width == 0)
        term.width = 80;
    if (term.width < 40)
        term.width = 40;
    term.colour = terminal && !(no_colour && *no_colour) && !(kind && strcmp(kind, "dumb") == 0);
    return term;
}

const char *cli_bold(const cli_term *term)
{
    return term->colour ? "\033[1m" : "";
}

const char *cli_dim(const cli_term *term)
{
    return term->colour ? "\033[2m" : "";
}

const char *cli_accent(const cli_term *term)
{
    return term->colour ? "\033[36m" : "";
}

const char *cli_reset(const cli_term *term)
{
    return term->colour ? "\033[0m" : "";
}

void cli_title(const cli_term *term, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs(cli_bold(term), stdout);
    vprintf(format, args);
    fputs(cli_reset(term), stdout);
    putchar('\n');
    va_end(args);
}

void cli_paragraph(const cli_term *term, int indent, const char *text)
{
    int64_t at = 0;
    while (*text) {
        size_t word = strcspn(text, " ");
        int64_t columns = attn_text_columns(text, word);
        if (at > 0 && indent + at + 1 + columns > term->width) {
            putchar('\n');
            at = 0;
        }
        if (at == 0)
            printf("%*s", indent, "");
        else
            putchar(' ');
        fwrite(text, 1, word, stdout);
        at += columns + (at > 0);
        text += word + strspn(text + word, " ");
    }
    putchar('\n');
}

void cli_pad(const char *text, int columns)
{
    int taken = (int)attn_text_columns(text, strlen(text));
    int room = abs(columns) - taken;
    if (room < 0)
        room = 0;
    if (columns < 0)
        printf("%*s%s", room, "", text);
    else
        printf("%s%*s", text, room, "");
}

void cli_print_safe(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i],
                      next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;
        if (c1 || c == 0x7F || (c < 0x20 && c != '\n' && c != '\t'))
            fputs("\xEF\xBF\xBD", stdout);
        else
            putchar(c);
        i += c1;
    }
}

static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

void cli_bar(const cli_term *term, double share, int columns)
{
    double clean = share >= 0 ? fmin(share, 1.0) : 0.0; /* NaN: no bar */
    int total = (int)lround(clean * columns * 8);
    fputs(cli_accent(term), stdout);
    for (int left = total; left > 0; left -= 8)
        fputs(eighths[left > 8 ? 8 : left], stdout);
    fputs(cli_reset(term), stdout);
}

/* From barely read to read almost alone: backgrounds of middling brightness, from slate through
 * violet to orange, so that text on them is legible and the order is plain on dark and on light
 * terminals alike. */
static const struct heat_step {
    double from;
    const char *begin;
} heat_steps[] = {
    {0.90, "\033[1;38;5;231;48;5;202m"}, {0.70, "\033[38;5;231;48;5;202m"},
    {0.50, "\033[38;5;231;48;5;167m"},   {0.30, "\033[38;5;231;48;5;132m"},
    {0.15, "\033[38;5;231;48;5;97m"},    {0.05, "\033[38;5;231;48;5;60m"},
};

const char *cli_heat_begin(const cli_term *term, double weight)
{
    for (size_t i = 0; term->colour && i < sizeof heat_steps / sizeof *heat_steps; i++)
        if (weight >= heat_steps[i].from)
            return heat_steps[i].begin;
    return weight < 0.05 ? cli_dim(term) : "";
}

const char *cli_heat_end(const cli_term *term, double weight)
{
    (void)weight;
    return cli_reset(term);
}

const char *cli_heat_block(double weight)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    if (!(weight >= 0.02))
        return " ";
    int level = (int)ceil(fmin(weight, 1.0) * 8);
    return blocks[level];
}

/* messages.c - errors and hints, numbers from options, whole files, JSON out. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void cli_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, command[0] ? "attn %s: " : "attn%s: ", command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void cli_hint(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("  ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int cli_bad_option(const char *command, char *const *argv)
{
    const char *word = optind > 0 ? argv[optind - 1] : "";
    if (optopt > 0 && optopt < 128 && isprint(optopt) && !(word[0] == '-' && word[1] == '-'))
        cli_error(command, "unknown option -%c, or its value is missing", optopt);
    else
        cli_error(command, "unknown option '%s', or its value is missing or not wanted", word);
    cli_hint("attn %s --help lists the options; text that starts with '-' goes after '--'",
             command);
    return CLI_USAGE;
}

bool cli_parse_int(const char *command, const char *option, const char *text, int64_t low,
                   int64_t high, int64_t *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < low || number > high) {
        cli_error(command, "%s is '%s'; it must be a whole number from %lld to %lld", option, text,
                  (long long)low, (long long)high);
        return false;
    }
    *value = number;
    return true;
}

bool cli_parse_real(const char *command, const char *option, const char *text, double low,
                    double high, double *value)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < low || number > high) {
        cli_error(command, "%s is '%s'; it must be a number from %g to %g", option, text, low,
                  high);
        return false;
    }
    *value = number;
    return true;
}

size_t cli_edit_distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    size_t m = strlen(a), n = strlen(b), row[MOST + 1];
    if (m > MOST || n > MOST)
        return MOST;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            size_t drop = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < drop ? replace : drop;
        }
    }
    return row[n];
}

/* One line for each key of the outermost object: long lists would fill the screen otherwise. */
static int dump_lines(json_t *object, size_t flags)
{
    const char *key;
    json_t *value;
    const char *before = "{\n";
    int failed = 0;
    json_object_foreach(object, key, value)
    {
        json_t *name = json_string(key);
        fputs(before, stdout);
        fputs("  ", stdout);
        failed |= json_dumpf(name, stdout, JSON_ENCODE_ANY);
        fputs(": ", stdout);
        failed |= json_dumpf(value, stdout, flags);
        json_decref(name);
        before = ",\n";
    }
    fputs(before[0] == '{' ? "{}" : "\n}", stdout);
    return failed;
}

int cli_print_json(json_t *value, int digits)
{
    size_t flags = JSON_REAL_PRECISION((size_t)digits) | JSON_ENCODE_ANY;
    int failed = value == NULL;
    if (value == NULL)
        cli_error("", "out of memory while writing JSON");
    else if (json_is_object(value))
        failed = dump_lines(value, flags);
    else
        failed = json_dumpf(value, stdout, flags);
    putchar('\n');
    json_decref(value);
    return failed ? CLI_FAILED : CLI_OK;
}

bool cli_read_all(const char *command, const char *path, char **text, size_t *bytes)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t capacity = 1 << 16, used = 0;
    char *buffer = malloc(capacity);
    bool good = file != NULL && buffer != NULL;
    errno = file ? ENOMEM : errno;
    while (good) {
        size_t got = fread(buffer + used, 1, capacity - used - 1, file);
        used += got;
        if (got == 0)
            break;
        if (used + 1 == capacity) {
            char *larger = realloc(buffer, capacity *= 2);
            good = larger != NULL;
            buffer = larger ? larger : buffer;
        }
    }
    if (good && ferror(file))
        good = false;
    if (!good) {
        cli_error(command, "cannot read %s: %s", path, strerror(errno));
        free(buffer);
        buffer = NULL;
    } else {
        buffer[used] = '\0';
    }
    if (file && file != stdin)
        fclose(file);
    *text = buffer;
    *bytes = used;
    return good;
}

bool cli_output_open(const char *command, const char *path, cli_output *out)
{
    struct stat there;
    const bool standard = strcmp(path, "-") == 0, in_place = standard || (lstat(path, &there) == 0 && !S_ISREG(there.st_mode));
    out->path = path;
    out->partial[0] = '\0';
    errno = ENAMETOOLONG;
    if (in_place)
        out->file = standard ? stdout : fopen(path, "wb");
    else if ((size_t)snprintf(out->partial, sizeof out->partial, "%s.partial", path) < sizeof out->partial)
        out->file = fopen(out->partial, "wb");
    else
        out->file = NULL;
    if (!out->file)
        cli_error(command, "cannot write %s: %s", path, strerror(errno));
    return out->file != NULL;
}

int cli_output_close(const char *command, cli_output *out, bool good)
{
    bool written = fflush(out->file) == 0 && !ferror(out->file);
    int reason = errno;
    if (out->file != stdout && fclose(out->file) != 0 && written) {
        reason = errno;
        written = false;
    }
    if (good && written && out->partial[0] && rename(out->partial, out->path) != 0) {
        reason = errno;
        written = false;
    }
    if (out->partial[0] && !(good && written))
        remove(out->partial);
    if (good && !written)
        cli_error(command, "cannot write %s: %s", out->path, strerror(reason));
    return good && written ? CLI_OK : CLI_FAILED;
}

int cli_write_all(const char *command, const char *path, const char *text, size_t bytes)
{
    cli_output out;
    if (!cli_output_open(command, path, &out))
        return CLI_FAILED;
    fwrite(text, 1, bytes, out.file); /* an error stays with the file */
    return cli_output_close(command, &out, true);
}

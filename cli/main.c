/* main.c - `attn`: finds the subcommand; everything that is not one is text for `attn run`. */
#include "cli.h"

#include "attn/attn.h"

#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

const cli_command *const cli_commands[] = {&cli_run, &cli_inspect, &cli_explain, &cli_lab, &cli_generate, &cli_score,
                                           &cli_info,    &cli_embed,   &cli_similar,  &cli_search,
                                           &cli_convert, &cli_train, NULL};

static const cli_command *find_command(const char *name)
{
    for (const cli_command *const *c = cli_commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static void print_help(FILE *to)
{
    fputs("attn - self-attention on a CPU: run a real model and see what it reads\n"
          "\n"
          "usage: attn TEXT              the same as: attn run TEXT\n"
          "       attn COMMAND ...\n"
          "       attn -- TEXT           TEXT even if it is a command's name\n"
          "\n"
          "commands:\n",
          to);
    for (const cli_command *const *c = cli_commands; *c; c++)
        fprintf(to, "  %-10s %s\n", (*c)->name, (*c)->summary);
    fputs("\n"
          "  attn COMMAND --help     options of a command, with an example\n"
          "  attn --version          versions, and the instruction set in use\n"
          "\n"
          "examples:\n"
          "  attn \"The bridge was closed because it\"\n"
          "  attn explain trace\n"
          "\n"
          "environment: ATTN_NUM_THREADS (threads), ATTN_ISA (scalar, avx2, ...), NO_COLOR, "
          "COLUMNS,\n"
          "             XDG_CACHE_HOME (models lie in its folder attn/; default ~/.cache),\n"
          "             ATTN_OFFLINE (set: a default model that is missing is not fetched)\n"
          "exit codes:  0 done; 1 the work failed; 2 wrong usage; 3 the model is not on this "
          "machine\n",
          to);
}

static int print_version(void)
{
    printf("attn %s (libattn %s, %s)\n", attn_version(), attn_version(), attn_ctx_isa(NULL));
    return CLI_OK;
}

/* A single unknown word that is nearly a command's name is still text, but worth a note. */
static void note_near_miss(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '-')
        return;
    for (const cli_command *const *c = cli_commands; *c; c++) {
        if (strlen(argv[1]) > 3 && cli_edit_distance(argv[1], (*c)->name) <= 2) {
            cli_error("", "reading '%s' as text; for the command, type: attn %s", argv[1],
                      (*c)->name);
            return;
        }
    }
}

/* `attn --model PATH run TEXT`: options of a command may stand in front of it. Moves the command's
 * name to the front, so that argv[1] is it. */
static void command_first(int argc, char **argv)
{
    int at = 1;
    while (at < argc && (strcmp(argv[at], "--model") == 0 || strcmp(argv[at], "--threads") == 0))
        at += 2;
    while (at < argc && (strncmp(argv[at], "--model=", 8) == 0 || strcmp(argv[at], "--json") == 0))
        at++;
    if (at > 1 && at < argc && find_command(argv[at])) {
        char *name = argv[at];
        memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
        argv[1] = name;
    }
}

static int dispatch(int argc, char **argv)
{
    command_first(argc, argv);
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return print_version();
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    const cli_command *command = find_command(argv[1]);
    if (!command) {
        note_near_miss(argc, argv);
        return cli_run.run(argc, argv);
    }
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || (i == 2 && strcmp(argv[i], "-h") == 0)) {
            fputs(command->help, stdout);
            return CLI_OK;
        }
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is then an error of the write, which is reported and cleaned up after */
    int code = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK) {
        cli_error("", "cannot write to standard output");
        code = CLI_FAILED;
    }
    return code;
}

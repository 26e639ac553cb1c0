/* cmd_run.c - `attn run`: a model on a text. The model's library is not there yet; see
 * include/attn. */
#include "cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    cli_error("run", "this build holds no models");
    cli_hint("attn explain shows the attention operator on numbers");
    return CLI_NO_MODEL;
}

const cli_command cli_run = {
    "run",
    "run a model on a text and see what it reads (not in this build)",
    "",
    run,
};

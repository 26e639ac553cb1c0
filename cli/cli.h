/* cli.h - what the subcommands of `attn` share: exit codes, messages, the terminal, numbers from
 * text. */
#ifndef ATTN_CLI_H
#define ATTN_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { /* exit codes, documented in `attn --help` */
       CLI_OK = 0,
       CLI_FAILED = 1,  /* the work could not be done: a file, memory, the library */
       CLI_USAGE = 2,   /* the command line makes no sense */
       CLI_NO_MODEL = 3 /* the model is not on this machine */
};

typedef struct cli_command {
    const char *name;
    const char *summary;               /* one line for `attn --help` */
    const char *help;                  /* the whole page of `attn NAME --help` */
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns an exit code */
} cli_command;

extern const cli_command cli_run, cli_inspect, cli_explain, cli_generate, cli_score, cli_info,
    cli_embed, cli_similar, cli_search, cli_convert, cli_train, cli_lab;

/* The table, in the order of the help; ends with a NULL name. */
extern const cli_command *const cli_commands[];

/* ---- messages.c ------------------------------------------------------------------------------ */

/** Writes "attn NAME: message" to stderr; a second line, "what to do next", comes from cli_hint. */
void cli_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** After getopt_long said '?' (opterr 0): names the option at fault. Returns CLI_USAGE. */
int cli_bad_option(const char *command, char *const *argv);

/** Whole numbers and reals from option values: false, with a message naming the option, when text
 * is not one or lies outside [low, high]. */
bool cli_parse_int(const char *command, const char *option, const char *text, int64_t low,
                   int64_t high, int64_t *value);
bool cli_parse_real(const char *command, const char *option, const char *text, double low,
                    double high, double *value);

/** Levenshtein distance, for "did you mean". */
size_t cli_edit_distance(const char *a, const char *b);

/** Prints a JSON value, a line for each key of an object, with `digits` significant digits, and
 * frees it. CLI_OK or CLI_FAILED. */
int cli_print_json(json_t *value, int digits);

/** Reads a whole file ("-": standard input) into *text, NUL-terminated, to be freed. false: a
 * message was written. */
bool cli_read_all(const char *command, const char *path, char **text, size_t *bytes);

/* A result's file: it appears whole or not at all. "-" is standard output; devices, pipes and links are written as they are. */
typedef struct cli_output {
    FILE *file;
    const char *path;
    char partial[4096]; /* "": written in place */
} cli_output;

/** false: a message was written. */
bool cli_output_open(const char *command, const char *path, cli_output *out);
/** Ends it; what was written is dropped unless `good`. CLI_OK, or CLI_FAILED: where `good`, a message was written. */
int cli_output_close(const char *command, cli_output *out, bool good);
/** Both, for a text in memory. */
int cli_write_all(const char *command, const char *path, const char *text, size_t bytes);

/* ---- term.c ---------------------------------------------------------------------------------- */

typedef struct cli_term {
    bool colour; /* escape sequences may be written */
    int width;   /* columns, at least 40 */
} cli_term;

/** What `stream` is: colour only on a terminal, unless NO_COLOR is set or TERM is "dumb"; width
 * from COLUMNS, else the terminal, else 80. */
cli_term cli_term_of(FILE *stream);

/* Styles; each is "" without colour. */
const char *cli_bold(const cli_term *term);
const char *cli_dim(const cli_term *term);
const char *cli_accent(const cli_term *term);
const char *cli_reset(const cli_term *term);

/** A section's title on a line of its own. */
void cli_title(const cli_term *term, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Prints text broken at spaces so that no line passes the width, every line indented by `indent`
 * columns. */
void cli_paragraph(const cli_term *term, int indent, const char *text);

/** Prints a NUL-terminated text padded with spaces to `columns`; negative: on the left. */
void cli_pad(const char *text, int columns);

/** Prints UTF-8 text as it is, line feeds and tabs too, but with U+FFFD for other control
 * characters, so that a model's text cannot drive the terminal. */
void cli_print_safe(const char *text, size_t bytes);

/** A bar of at most `columns` columns for a share 0..1, in eighths of a column (UTF-8, padded with
 * spaces). */
void cli_bar(const cli_term *term, double share, int columns);

/** Starts and ends a heat-map cell of weight 0..1: the background colour, or nothing without
 * colour. */
const char *cli_heat_begin(const cli_term *term, double weight);
const char *cli_heat_end(const cli_term *term, double weight);

/** One block character whose height shows a weight 0..1; a space for less than 1/50. */
const char *cli_heat_block(double weight);

#endif /* ATTN_CLI_H */

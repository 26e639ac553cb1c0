/* lines.h - the lines of a text, where they lie. */
#ifndef ATTN_CLI_LINES_H
#define ATTN_CLI_LINES_H

#include "embedder.h"

typedef struct line_list {
    char *text; /* owns the bytes */
    embedder_text *lines;
    int64_t n;
} line_list;

/** The lines of the files one after the other ("-": standard input), without their ends; n_paths 0:
 * standard input. false after a message. */
bool lines_read(const char *command, char *const *paths, int n_paths, line_list *list);
void lines_free(line_list *list);

#endif /* ATTN_CLI_LINES_H */

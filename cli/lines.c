/* lines.c - the lines of files, where they lie. */
#include "lines.h"

#include <stdlib.h>

/* Appends a file's bytes, with a line feed behind the last line. */
static bool append_file(const char *command, const char *path, line_list *list, size_t *used)
{
    char *text, *larger;
    size_t bytes;
    if (!cli_read_all(command, path, &text, &bytes))
        return false;
    larger = realloc(list->text, *used + bytes + 2);
    if (!larger) {
        cli_error(command, "out of memory");
        free(text);
        return false;
    }
    list->text = larger;
    memcpy(list->text + *used, text, bytes);
    *used += bytes;
    if (bytes > 0 && text[bytes - 1] != '\n')
        list->text[(*used)++] = '\n';
    free(text);
    return true;
}

bool lines_read(const char *command, char *const *paths, int n_paths, line_list *list)
{
    size_t used = 0;
    bool good = true;
    int64_t n = 0;
    memset(list, 0, sizeof *list);
    if (n_paths == 0)
        good = append_file(command, "-", list, &used);
    for (int i = 0; good && i < n_paths; i++)
        good = append_file(command, paths[i], list, &used);
    for (size_t i = 0; good && i < used; i++)
        n += list->text[i] == '\n';
    if (good) {
        list->lines = malloc((size_t)(n + 1) * sizeof *list->lines);
        good = list->lines != NULL;
        if (!good)
            cli_error(command, "out of memory");
    }
    for (size_t at = 0; good && at < used;) {
        const char *end = memchr(list->text + at, '\n', used - at);
        size_t length = (size_t)(end - list->text) - at;
        embedder_text *line = &list->lines[list->n++];
        line->text = list->text + at;
        line->bytes = length > 0 && list->text[at + length - 1] == '\r' ? length - 1 : length;
        at += length + 1;
    }
    if (!good)
        lines_free(list);
    return good;
}

void lines_free(line_list *list)
{
    free(list->text);
    free(list->lines);
    memset(list, 0, sizeof *list);
}

/* cmd_embed.c - `attn embed`: a vector for each line of text. */
#include "embedder.h"
#include "lines.h"
#include "npy.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

enum {
    BLOCK = 32768
}; /* texts of one call: sorted by length together, and this many vectors in memory */

typedef enum embed_format { FORMAT_JSONL, FORMAT_NPY, FORMAT_F32 } embed_format;

typedef struct embed_options {
    embedder_options model;
    const char *out;
    embed_format format;
    bool format_given;
} embed_options;

static bool ends_with(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

static bool parse_format(const char *value, embed_options *o)
{
    static const char *const names[] = {"jsonl", "npy", "f32", "raw"}; /* the last two are one */
    for (int f = 0; f < 4; f++)
        if (strcmp(value, names[f]) == 0) {
            o->format = (embed_format)(f < 3 ? f : 2);
            o->format_given = true;
            return true;
        }
    cli_error("embed", "--format is '%s'; it must be jsonl, npy, f32 or raw", value);
    return false;
}

static int parse(int argc, char **argv, embed_options *o)
{
    enum { OPT_FORMAT = 256, OPT_JSON };
    static const struct option options[] = {{"format", required_argument, NULL, OPT_FORMAT},
                                            {"out", required_argument, NULL, 'o'},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            EMBEDDER_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    int option;
    memset(o, 0, sizeof *o);
    opterr = 0;
    while ((option = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        int taken = embedder_take_option("embed", &o->model, option, optarg);
        if (option == '?')
            return cli_bad_option("embed", argv);
        if (taken < 0)
            return CLI_USAGE;
        if (option == 'o')
            o->out = optarg;
        if ((option == OPT_FORMAT && !parse_format(optarg, o)) ||
            (option == OPT_JSON && !parse_format("jsonl", o)))
            return CLI_USAGE;
    }
    if (!o->format_given && o->out)
        o->format = ends_with(o->out, ".npy")   ? FORMAT_NPY
                    : ends_with(o->out, ".f32") ? FORMAT_F32
                                                : FORMAT_JSONL;
    return CLI_OK;
}

/* {"text": ..., "embedding": [...]}, nine digits: an f32 comes back as it was. */
static bool write_jsonl(FILE *file, const embedder_text *text, const float *vector, int64_t dim)
{
    json_t *value = cli_text_json(text->text, text->bytes);
    bool good = value != NULL;
    fputs("{\"text\": ", file);
    good = good && json_dumpf(value, file, JSON_ENCODE_ANY) == 0;
    json_decref(value);
    fputs(", \"embedding\": [", file);
    for (int64_t d = 0; d < dim; d++)
        fprintf(file, "%s%.9g", d ? ", " : "", (double)vector[d]);
    fputs("]}\n", file);
    return good;
}

static bool write_block(FILE *file, embed_format format, const embedder_text *texts,
                        const float *vectors, int64_t n, int64_t dim)
{
    bool good = true;
    if (format != FORMAT_JSONL)
        return fwrite(vectors, sizeof *vectors, (size_t)(n * dim), file) == (size_t)(n * dim);
    for (int64_t i = 0; good && i < n; i++)
        good = write_jsonl(file, &texts[i], vectors + i * dim, dim);
    return good && !ferror(file);
}

static int embed_lines(embedder *e, const line_list *list, const embed_options *o, FILE *file)
{
    int64_t dim = e->m.info.d_model;
    float *vectors =
        malloc((size_t)((list->n < BLOCK ? list->n : BLOCK) * dim) * sizeof *vectors + 1);
    cli_progress progress = cli_progress_start("embedding", "texts");
    char header[NPY_HEADER_BYTES];
    bool written = true;
    int code = vectors ? CLI_OK : CLI_FAILED;
    if (!vectors)
        cli_error("embed", "out of memory");
    if (o->format == FORMAT_NPY) {
        npy_header(list->n, dim, header);
        written = fwrite(header, 1, sizeof header, file) == sizeof header;
    }
    progress.whole = list->n;
    for (int64_t first = 0; code == CLI_OK && written && first < list->n; first += BLOCK) {
        int64_t n = list->n - first < BLOCK ? list->n - first : BLOCK;
        progress.base = first;
        progress.part = n;
        code = embedder_run("embed", e, list->lines + first, n, vectors, &progress);
        if (code == CLI_OK)
            written = write_block(file, o->format, list->lines + first, vectors, n, dim);
    }
    cli_progress_end(&progress);
    free(vectors);
    if (code == CLI_OK && !written) {
        cli_error("embed", "cannot write %s: %s", o->out ? o->out : "standard output",
                  strerror(errno));
        code = CLI_FAILED;
    }
    return code;
}

/* Into o->out, which appears whole or not at all; or standard output. */
static int embed_into(embedder *e, const line_list *list, const embed_options *o)
{
    cli_output out;
    if (!o->out || strcmp(o->out, "-") == 0)
        return embed_lines(e, list, o, stdout);
    cli_stop_in_order();
    if (!cli_output_open("embed", o->out, &out))
        return CLI_FAILED;
    const int code = embed_lines(e, list, o, out.file), closed = cli_output_close("embed", &out, code == CLI_OK);
    return code == CLI_OK ? closed : code;
}

static int embed(int argc, char **argv)
{
    embed_options o;
    embedder e;
    line_list list;
    int code = parse(argc, argv, &o);
    if (code != CLI_OK)
        return code;
    if (!lines_read("embed", argv + optind, argc - optind, &list))
        return CLI_FAILED;
    if (list.n == 0) {
        cli_error("embed", "there is no text in %s", optind < argc ? argv[optind] : "standard input");
        lines_free(&list);
        return CLI_FAILED;
    }
    code = embedder_open("embed", &o.model, &e);
    if (code == CLI_OK) {
        code = embed_into(&e, &list, &o);
        embedder_close(&e);
    }
    lines_free(&list);
    return code;
}

const cli_command cli_embed = {
    "embed",
    "a vector for each line of text",
    "attn embed - a vector for each line of text\n"
    "\n"
    "usage: attn embed [OPTIONS] [FILE]...     without a file, or with -: standard input\n"
    "\n"
    "Every line is a text, an empty one too, so that line numbers and rows agree. A text's vector "
    "is\n"
    "the same to the last bit whatever else is embedded with it.\n"
    "\n"
    "options:\n"
    "  -o, --out FILE     where to write (default: standard output)\n"
    "  --format FORMAT    jsonl (a line {\"text\", \"embedding\"} each), npy (NumPy's matrix file) "
    "or f32\n"
    "                     (raw: bare little-endian numbers); default: by FILE's ending, else jsonl\n"
    "  --json             the same as --format jsonl\n" EMBEDDER_HELP "\n"
    "example:\n"
    "  attn embed -o notes.npy notes.txt\n"
    "  attn search \"how to brew coffee\" notes.npy --texts notes.txt\n",
    embed,
};

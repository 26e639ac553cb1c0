/* npy.c - NumPy's array files (format versions 1.0 to 3.0), as far as a matrix of floats needs
 * them. */
#include "npy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void npy_header(int64_t rows, int64_t columns, char out[NPY_HEADER_BYTES])
{
    enum { PREFIX = 10 };
    int n;
    memset(out, ' ', NPY_HEADER_BYTES);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)(NPY_HEADER_BYTES - PREFIX);
    out[9] = 0;
    n = snprintf(out + PREFIX, NPY_HEADER_BYTES - PREFIX,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                 (long long)rows, (long long)columns);
    out[PREFIX + n] = ' '; /* over snprintf's NUL */
    out[NPY_HEADER_BYTES - 1] = '\n';
}

/* The text behind 'name': in the header's dictionary, or NULL. */
static const char *field(const char *header, const char *name)
{
    char quoted[32];
    const char *at;
    snprintf(quoted, sizeof quoted, "'%s':", name);
    at = strstr(header, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    while (*at == ' ')
        at++;
    return at;
}

/* "(rows, columns)" of two non-negative numbers below 2^40. */
static bool read_shape(const char *at, int64_t *rows, int64_t *columns)
{
    int64_t n[2] = {0, 0};
    if (!at || *at++ != '(')
        return false;
    for (int i = 0; i < 2; i++) {
        if (!isdigit((unsigned char)*at))
            return false;
        while (isdigit((unsigned char)*at) && n[i] < ((int64_t)1 << 40))
            n[i] = 10 * n[i] + (*at++ - '0');
        while (*at == ' ' || (i == 0 && *at == ','))
            at++;
    }
    if (*at == ',')
        at++;
    *rows = n[0];
    *columns = n[1];
    return *at == ')' && n[0] < ((int64_t)1 << 40) && n[1] < ((int64_t)1 << 40);
}

/* Where the data begin, and the header as text (to be freed); 0 after a message. */
static size_t read_header(const char *command, const char *path, const char *bytes, size_t n,
                          char **header)
{
    const unsigned char *b = (const unsigned char *)bytes;
    size_t prefix, length;
    if (n < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3) {
        cli_error(command, "%s is no .npy file", path);
        return 0;
    }
    prefix = b[6] == 1 ? 10 : 12;
    length = b[6] == 1
                 ? (size_t)b[8] | (size_t)b[9] << 8
                 : (size_t)b[8] | (size_t)b[9] << 8 | (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > n - prefix) {
        cli_error(command, "%s: the header has %zu bytes, the file only %zu", path, length, n);
        return 0;
    }
    *header = calloc(length + 1, 1);
    if (!*header) {
        cli_error(command, "out of memory");
        return 0;
    }
    memcpy(*header, bytes + prefix, length);
    return prefix + length;
}

static bool check_header(const char *command, const char *path, const char *header,
                         size_t data_bytes, size_t *item, int64_t *rows, int64_t *columns)
{
    const char *descr = field(header, "descr"), *order = field(header, "fortran_order");
    size_t wanted = 0;
    *item = descr && strncmp(descr, "'<f4'", 5) == 0   ? 4
            : descr && strncmp(descr, "'<f8'", 5) == 0 ? 8
                                                       : 0;
    if (*item == 0)
        cli_error(command, "%s: descr is %.8s; '<f4' or '<f8' is needed", path,
                  descr ? descr : "missing");
    else if (!order || strncmp(order, "False", 5) != 0)
        cli_error(command, "%s: fortran_order must be False", path);
    else if (!read_shape(field(header, "shape"), rows, columns))
        cli_error(command, "%s: shape is not that of a matrix", path);
    else if (__builtin_mul_overflow((size_t)*rows, (size_t)*columns, &wanted) ||
             __builtin_mul_overflow(wanted, *item, &wanted) || wanted != data_bytes)
        cli_error(command, "%s: shape (%lld, %lld) does not go with %zu bytes of data", path,
                  (long long)*rows, (long long)*columns, data_bytes);
    else
        return true;
    return false;
}

bool npy_read(const char *command, const char *path, float **data, int64_t *rows, int64_t *columns)
{
    char *bytes, *header = NULL;
    size_t n, start, item = 0;
    bool good;
    *data = NULL;
    if (!cli_read_all(command, path, &bytes, &n))
        return false;
    start = read_header(command, path, bytes, n, &header);
    good = start > 0 && check_header(command, path, header, n - start, &item, rows, columns);
    if (good) {
        size_t count = (n - start) / item;
        *data = malloc(count * sizeof **data + 1);
        for (size_t i = 0; *data && i < count; i++) {
            double wide;
            if (item == 4)
                memcpy(*data + i, bytes + start + 4 * i, 4);
            else {
                memcpy(&wide, bytes + start + 8 * i, 8);
                (*data)[i] = (float)wide;
            }
        }
        good = *data != NULL;
        if (!good)
            cli_error(command, "out of memory");
    }
    free(header);
    free(bytes);
    return good;
}

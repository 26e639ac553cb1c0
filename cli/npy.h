/* npy.h - matrices of f32 in NumPy's .npy files. */
#ifndef ATTN_CLI_NPY_H
#define ATTN_CLI_NPY_H

#include "cli.h"

enum { NPY_HEADER_BYTES = 128 };

/** The header of a C-ordered little-endian f32 matrix, always NPY_HEADER_BYTES long, so that the
 * number of rows can be filled in at the end. */
void npy_header(int64_t rows, int64_t columns, char out[NPY_HEADER_BYTES]);

/** Reads a matrix of f32 (or f64, narrowed) with its shape checked against the file's size. *data
 * is to be freed. false after a message that names the field. */
bool npy_read(const char *command, const char *path, float **data, int64_t *rows, int64_t *columns);

#endif /* ATTN_CLI_NPY_H */

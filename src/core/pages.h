/* pages.h - memory for large arrays. */
#ifndef ATTN_CORE_PAGES_H
#define ATTN_CORE_PAGES_H

#include <stddef.h>

/* `bytes` of memory, aligned to 64, to be given back with free(); NULL: none. Arrays of several megabytes begin at a
 * large page and ask the system for such pages: products read rows that are thousands of bytes apart, each in a
 * small page of its own. */
void *attn_pages_allocate(size_t bytes);

#endif

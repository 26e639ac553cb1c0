/* pages.c - large pages where the system has them for the asking. */
#include "core/pages.h"
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)

void *attn_pages_allocate(size_t bytes)
{
    void *memory = NULL;
    if (bytes < 2 * LARGE_PAGE)
        return posix_memalign(&memory, 64, bytes ? bytes : 64) ? NULL : memory;
    if (posix_memalign(&memory, LARGE_PAGE, bytes))
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE); /* a wish: what it answers does not matter */
#endif
    return memory;
}

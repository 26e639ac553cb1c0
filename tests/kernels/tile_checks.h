/* tile_checks.h - ordinary headers of the test_tiles_<isa>.c programs. */
#ifndef TESTS_TILE_CHECKS_H
#define TESTS_TILE_CHECKS_H

#include <string.h>
#include "simd_checks.h"
#include "core/context.h"
#include "core/view.h"
#include "kernels/table.h"
#include "kernels/sdpa/decode_plan.h"
#include "ops/sdpa/validate.h"

#endif

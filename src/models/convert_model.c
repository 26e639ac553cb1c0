/* convert_model.c - attn_model_convert: io's converter behind the public header. */
#include <string.h>
#include "attn/model.h"
#include "io/convert.h"
#include "models/model_internal.h"

attn_status attn_model_convert(const char *path, const char *folder, int32_t dtype,
                               attn_progress progress, void *progress_user,
                               attn_model_converted *converted)
{
    attn_convert_options options = {.progress = progress, .progress_user = progress_user};
    attn_convert_report report;
    attn_model_converted ours;
    ATTN_MODEL_REQUIRE(path && folder, "path and folder must be given");
    ATTN_MODEL_REQUIRE(dtype == ATTN_F32 || dtype == ATTN_BF16 || dtype == ATTN_F16,
                       "dtype is %d; ATTN_F32, ATTN_BF16 and ATTN_F16 can be written", dtype);
    ATTN_MODEL_REQUIRE(!converted || converted->struct_size >= sizeof converted->struct_size,
                       "converted.struct_size is %zu", converted->struct_size);
    options.dtype = dtype == ATTN_F32    ? ATTN_ST_F32
                    : dtype == ATTN_BF16 ? ATTN_ST_BF16
                                         : ATTN_ST_F16;
    const attn_status status = attn_convert(path, folder, &options, &report,
                                            attn_model_error_buffer(), ATTN_MODEL_ERROR_BYTES);
    if (status != ATTN_OK || !converted)
        return status;
    memset(&ours, 0, sizeof ours);
    ours.struct_size = converted->struct_size;
    ours.n_tensors = report.tensors;
    ours.n_elements = report.elements;
    ours.n_overflows = report.overflows;
    ours.has_config = report.has_config;
    ours.has_tokenizer = report.has_tokenizer;
    memcpy(ours.note, report.note, sizeof ours.note);
    memcpy(converted, &ours,
           converted->struct_size < sizeof ours ? converted->struct_size : sizeof ours);
    return ATTN_OK;
}

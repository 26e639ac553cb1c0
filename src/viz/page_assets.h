/* page_assets.h - the files of src/viz/page as arrays, made by cmake/embed.cmake. */
#ifndef ATTN_VIZ_PAGE_ASSETS_H
#define ATTN_VIZ_PAGE_ASSETS_H

#include <stddef.h>

extern const unsigned char attn_asset_css[], attn_asset_js[], attn_asset_html[];
extern const size_t attn_asset_css_bytes, attn_asset_js_bytes, attn_asset_html_bytes;

#endif

/* test_text_visible.c - columns of text in a terminal, and the safe rendering of any bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "attn/viz.h"

static void expect_columns(const char *text, int64_t columns)
{
    assert_int_equal(attn_text_columns(text, strlen(text)), columns);
}

static void expect_visible(const char *text, size_t bytes, int64_t limit, const char *wanted,
                           int64_t columns)
{
    char out[256];
    int64_t taken = -1;
    size_t needed = attn_text_visible(text, bytes, limit, out, sizeof out, &taken);
    assert_string_equal(out, wanted);
    assert_int_equal(needed, strlen(wanted));
    assert_int_equal(taken, columns);
}

static void test_columns(void **state)
{
    (void)state;
    expect_columns("", 0);
    expect_columns(" bridge", 7);
    expect_columns("Café", 4);
    expect_columns("Cafe\xCC\x81", 4); /* e and a combining acute */
    expect_columns("東京", 4);
    expect_columns("\xF0\x9F\x98\x80", 2); /* an emoji */
    expect_columns("שלום", 4);
    expect_columns("\xE6\x9D", 2); /* two bytes of a broken character */
}

static void test_controls_become_visible(void **state)
{
    (void)state;
    expect_visible("a\nb\tc", 5, -1, "a⏎b⇥c", 5);
    expect_visible("\r\x1B[31m\x7F", 7, -1, "␍␛[31m␡", 7);
    expect_visible("a\0b", 3, -1, "a␀b", 3);
    expect_visible("\xC2\x9B"
                   "2J",
                   4, -1, "\\x9B2J", 6); /* C1: a one-character escape sequence */
}

static void test_broken_bytes_are_named(void **state)
{
    (void)state;
    expect_visible("\xE6\x9D", 2, -1, "\\xE6\\x9D", 8);
    expect_visible("\xED\xA0\x80", 3, -1, "\\xED\\xA0\\x80", 12); /* a surrogate is not UTF-8 */
    expect_visible("ok\xFF", 3, -1, "ok\\xFF", 6);
}

static void test_hidden_characters_are_named(void **state)
{
    (void)state;
    expect_visible("a\xE2\x80\xAE"
                   "b",
                   5, -1, "a\\u202Eb", 8);               /* right-to-left override */
    expect_visible("\xE2\x80\x8D", 3, -1, "\\u200D", 6); /* a joiner alone */
    expect_visible("\xE2\x80\xA8", 3, -1, "\\u2028", 6); /* line separator */
    expect_visible("\xCC\x81", 2, -1, "\xE2\x97\x8C\xCC\x81",
                   1); /* a mark alone sits on a dotted circle */
    expect_visible("e\xCC\x81", 3, -1, "e\xCC\x81", 1);
}

static void test_right_to_left_is_isolated(void **state)
{
    (void)state;
    expect_visible(" שלום", 9, -1, "\xE2\x81\xA8 שלום\xE2\x81\xA9", 5);
    expect_visible("مرحبا", 10, 3, "\xE2\x81\xA8مر\xE2\x81\xA9…", 3);
}

static void test_clip(void **state)
{
    (void)state;
    expect_visible("bridge", 6, 6, "bridge", 6);
    expect_visible("bridge", 6, 5, "brid…", 5);
    expect_visible("東京都", 9, 5, "東京…", 5);
    expect_visible("東京都", 9, 4, "東…", 3); /* a wide character is not cut in half */
    expect_visible("bridge", 6, 1, "…", 1);
    expect_visible("bridge", 6, 0, "", 0);
    expect_visible("", 0, 3, "", 0);
}

/* Every capacity: never a byte past the end, always NUL-terminated between characters, same answer.
 */
static void test_small_buffers(void **state)
{
    (void)state;
    const char *text = "a東\n\xFFש";
    char whole[64];
    size_t needed = attn_text_visible(text, strlen(text), -1, whole, sizeof whole, NULL);
    assert_int_equal(needed, strlen(whole));
    for (size_t capacity = 0; capacity <= needed + 1; capacity++) {
        char *out = malloc(capacity ? capacity : 1);
        assert_int_equal(
            attn_text_visible(text, strlen(text), -1, capacity ? out : NULL, capacity, NULL),
            needed);
        if (capacity > 0) {
            assert_true(strlen(out) < capacity);
            assert_memory_equal(out, whole, strlen(out));
        }
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_controls_become_visible),
        cmocka_unit_test(test_broken_bytes_are_named),
        cmocka_unit_test(test_hidden_characters_are_named),
        cmocka_unit_test(test_right_to_left_is_isolated),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_small_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

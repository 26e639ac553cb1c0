/* test_chat_template.c - chat templates: the texts that Transformers' renderer makes (tests/data/chat, written by
 * make_chat_cases.py), and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "text/chat_template.h"

static void test_as_transformers(void **state)
{
    (void)state;
    json_error_t reason;
    json_t *root = json_load_file(ATTN_SOURCE_DIR "/tests/data/chat/templates.json", 0, &reason), *test, *run;
    size_t i, k;
    int compared = 0, refused = 0;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, test)
    {
        const json_t *source = json_object_get(test, "template");
        const char *name = json_string_value(json_object_get(test, "name"));
        json_array_foreach(json_object_get(test, "runs"), k, run)
        {
            char *text, error[300] = "";
            size_t n;
            json_t *variables = json_deep_copy(json_object_get(run, "variables"));
            const json_t *want = json_object_get(run, "text");
            json_object_set_new(variables, "tools", json_null());
            attn_status status = attn_chat_template_render(json_string_value(source), json_string_length(source), variables,
                                                           &text, &n, error, sizeof error);
            json_decref(variables);
            if (json_is_null(want)) {
                if (status == ATTN_OK || !strstr(error, "chat template, line "))
                    fail_msg("%s, run %zu: '%s' is no refusal", name, k, error);
                refused++;
                continue;
            }
            if (status != ATTN_OK)
                fail_msg("%s, run %zu: %s", name, k, error);
            if (n != json_string_length(want) || memcmp(text, json_string_value(want), n))
                fail_msg("%s, run %zu:\n%s\n--- is not\n%s", name, k, text, json_string_value(want));
            free(text);
            compared++;
        }
    }
    json_decref(root);
    printf("%d texts, %d refusals\n", compared, refused);
    assert_true(compared > 100 && refused > 5);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        attn_status status;
        const char *says;
    } cases[] = {
        {"{{ x", ATTN_ERR_FORMAT, "{{ has no end"},
        {"a\nb{% if x %}", ATTN_ERR_FORMAT, "line 2: if without an end"},
        {"{% endif %}", ATTN_ERR_FORMAT, "endif without a beginning"},
        {"{% for a in x %}{% endif %}", ATTN_ERR_FORMAT, "endif within for"},
        {"{% include 'x' %}", ATTN_ERR_UNSUPPORTED, "statement include"},
        {"{{ x | wordcount }}", ATTN_ERR_UNSUPPORTED, "filter wordcount"},
        {"{{ x is filter }}", ATTN_ERR_UNSUPPORTED, "test filter"},
        {"{{ x.encode() }}", ATTN_ERR_UNSUPPORTED, "encode()"},
        {"{{ open('x') }}", ATTN_ERR_UNSUPPORTED, "function open()"},
        {"{{ nothing.y }}", ATTN_ERR_FORMAT, ".y of a value that is not defined"},
        {"{{ [1] }}", ATTN_ERR_UNSUPPORTED, "a list or dict is printed"},
        {"{{ 1 // 0 }}", ATTN_ERR_FORMAT, "has no value"},
        {"{{ 1 / 0 }}", ATTN_ERR_FORMAT, "division by zero"},
        {"{{ 9223372036854775807 * 3 }}", ATTN_ERR_FORMAT, "too large"},
        {"{{ x y }}", ATTN_ERR_FORMAT, "\"y \" is one too many"},
        {"{{ 'abc }}", ATTN_ERR_FORMAT, "has no end"},
        {"{% if 1 if 2 else 3 %}{% endif %}", ATTN_ERR_FORMAT, "one too many"},
        {"{{ 1 if 0 if 2 }}", ATTN_ERR_UNSUPPORTED, "one condition behind another"},
        {"{{ 'a' is odd }}", ATTN_ERR_FORMAT, "no whole number"},
        {"{{ raise_exception('only two turns') }}", ATTN_ERR_INVALID_ARGUMENT, "refuses: only two turns"},
        {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", ATTN_ERR_FORMAT, "too deep"},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}", ATTN_ERR_FORMAT, "members"},
        {"{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}", ATTN_ERR_FORMAT, "too deep"},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", ATTN_ERR_FORMAT, "bytes"},
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", ATTN_ERR_FORMAT, "more than"},
    };
    json_t *variables = json_pack("{s:s}", "x", "text");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text, error[300] = "";
        size_t n;
        attn_status status = attn_chat_template_render(cases[i].source, strlen(cases[i].source), variables, &text, &n, error,
                                                       sizeof error);
        if (status != cases[i].status || !strstr(error, cases[i].says))
            fail_msg("%s: status %d, '%s'", cases[i].source, (int)status, error);
        assert_null(text);
    }
    json_decref(variables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_transformers), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

"""make_chat_cases.py OUT: chat templates in the forms of the common families, with the texts that Transformers' own renderer makes of
conversations (null: it refuses). Written with transformers 5.24.0 and jinja2 3.1.6; tests/text/test_chat_template.c reads the
result."""
import json
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

ALTERNATE = "{{ raise_exception('roles take turns, the user first') }}"
TEMPLATES = {
    "turns with a default system message": (
        "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}"
        "{% endif %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
    "headers": (
        "{% set all = messages %}{% for m in all %}{% set text = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "
        "m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set text = bos_token + text %}{% endif %}{{ text }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"),
    "headers on lines of their own": """{{- bos_token }}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- the system message, where there is one #}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{%- if date is not defined %}
    {%- if strftime_now is defined and 1 > 2 %}
        {%- set date = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date = "1 May" %}
    {%- endif %}
{%- endif %}
{{- "<|system|>\\n" + "Today: " + date + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
    {%- endfor %}
{%- endif %}
{{- system ~ "<|end|>" }}
{%- for m in messages %}
    {%- if not (m.role == 'tool' or 'calls' in m) %}
        {{- '<|' + m['role'] + '|>\\n\\n' + m['content'] | trim + '<|end|>' }}
    {%- elif m.role == "tool" %}
        {%- if m.content is mapping or m.content is iterable %}
            {{- m.content | tojson }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\\n\\n' }}
{%- endif %}
""",
    "instructions, the system message inside": (
        "{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}"
        "{% set turns = messages %}{% set system = false %}{% endif %}{% for m in turns %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        + ALTERNATE + "{% endif %}{% if loop.index0 == 0 and system != false %}{% set text = '<<SYS>>\\\\n' + system + '\\\\n<</SYS>>\\\\n\\\\n' + m['content'] %}"
        "{% else %}{% set text = m['content'] %}{% endif %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"),
    "instructions, counted in a namespace": """{%- set turns = messages %}
{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- endif %}
{%- set users = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for m in turns %}
    {%- if not (m.role == "tool" or (m.calls is defined and m.calls is not none)) %}
        {%- if (m["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in turns %}
    {%- if m["role"] == "user" %}
        {%- if m == users[-1] and system is defined %}
            {{- "[INST] " + system + "\\n\\n" + m["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + m["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + m["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
""",
    "no system role": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for m in messages %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}" + ALTERNATE + "{% endif %}"
        "{% if (m['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = m['role'] %}{% endif %}"
        "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"),
    "a conditional value, content in parts": """{{ bos_token }}
{%- set prefix = messages[0]['content'] + '

' if messages[0]['role'] == 'system' else '' -%}
{%- for m in messages if m.role != 'system' -%}
    {{ '<start_of_turn>' + m['role'] + '
' + (prefix if loop.first else "") }}
    {%- if m['content'] is string -%}
        {{ m['content'] | trim }}
    {%- else -%}
        {%- for item in m['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- else -%}
    nobody speaks
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "thoughts of earlier turns left out": """{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and m.role == "user" and not(m.content.startswith('<r>') and m.content.endswith('</r>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- set thought = '' %}
    {%- if m.role == "assistant" and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last and (loop.last or thought) %}
        {{- '<|im_start|>' + m.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thinking is defined and thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "white space on lines": "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\\n' + m['content'] + eos_token }}\n{% else %}\n  {% if true %}  \n"
                            "{{ m.role }}\n  {% endif %} tail\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}\n",
    "everything": """{%- macro line(role, text, last=false) -%}
<{{ role|upper }}>{{ text }}{% if last %}!{% endif %}
{%- endmacro -%}
{%- macro lines(ms) %}
{% for m in ms if m.role != 'system' %}
  {{ line(m.role, m.content, last=loop.last) }} {{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }}{{ loop.previtem.role if loop.previtem is defined }}
{% else %}
none
{% endfor %}
{% endmacro %}
{% set x %}block {{ messages|length }}{% endset %}
{# a comment with {{ and %} #}
 {{ x|trim }}
{% raw %}{{ as it is }}{% endraw %}
{{ lines(messages) }}
{% for a, b in {'k': 1, 'j': 2.5}.items() %}{{ a }}={{ b }};{% endfor %}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 * 3 + 1 }} {{ "ab" * 3 }} {{ 'a' ~ 1 ~ none ~ true }}
{{ [1,2,3][1:]|join('-') }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ '\\u00e4\\xf6ü'|length }} {{ 'x' in 'xyz' }} {{ 3 not in [1,2] }}
{{ messages|map(attribute='role')|join(',') }} {{ messages|rejectattr('role', 'in', ['user', 'system'])|list|length }}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{{ 1 < 2 < 3 }} {{ not true or false }} {{ missing|default('d') }} {{ missing }}|{{ "a" if false }}|{{ 'x' if messages else 'y' }}
{{ {'a': [1, "ü", none, true], 'b': {'c': 1.5}}|tojson }}
{{ 'a,b,c'.split(',')[1] }} {{ 'a b  c'.split()|join('|') }} {{ 'a,b,c'.rsplit(',', 1)[0] }} {{ " x ".strip() ~ "|" }} {{ 'two words'|title }}
{{ 'abc'.replace('b','X') }} {{ 'abc'.find('c') }} {{ {'a': 1}.get('b', 2) }} {{ {'b': 1, 'a': 2}|dictsort|first|last }} {{ [3, 4]|last }}
{{ loop is defined }} {{ 4 is even }} {{ 4 is divisibleby 2 }} {{ messages is iterable }} {{ 'q' is string }} {{ 5 is number }} {{ none is none }}
   {% if true %}   
  kept
   {% endif %}   tail
   {%+ if true %} plus {% endif +%}
end
""",
}
TEXTS = ["Hello", "", "  around \n", "a <|im_end|> [INST] </s>", "\" ' & < > \\n {{ x }} {% y %}", "ünï\u00a0日本 🙂\u3000"]


def conversations():
    for text in TEXTS:
        yield [("user", text)], True
        yield [("system", "Be  brief. "), ("user", text)], True
    yield [("system", ""), ("user", "a"), ("assistant", "<think>b</think>\n\nok "), ("user", "more")], True
    yield [("user", "a"), ("assistant", "<think>b</think>\n\nok ")], False
    yield [("user", "a"), ("user", "b")], True
    yield [("system", "alone")], True


def main():
    cases = []
    for name, template in TEMPLATES.items():
        compiled, runs = _compile_jinja_template(template), []
        for turns, prompt in conversations():
            variables = {"messages": [{"role": r, "content": c} for r, c in turns], "add_generation_prompt": prompt, "bos_token": "<s>",
                         "eos_token": "</s>"}
            try:
                text = compiled.render(tools=None, documents=None, **variables)
            except Exception:
                text = None
            runs.append({"variables": variables, "text": text})
        cases.append({"name": name, "template": template, "runs": runs})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"cases": cases}, file, ensure_ascii=False, indent=1)
        file.write("\n")


main()

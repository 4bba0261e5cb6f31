"""Chat templates of published models render, grow turn by turn, and cannot do harm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.config import ChatMessage
from engine.errors import ChatTemplateError
from engine.text.chat_template import ChatTemplate
from tests.engine.text import vocabularies
from tests.reference import REFERENCE, needs_reference

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYSTEM = ChatMessage("system", "Be brief.")
USER, REPLY, NEXT = (
    ChatMessage("user", "Hello"),
    ChatMessage("assistant", "Hi."),
    ChatMessage("user", "Bye"),
)
# Whether a log of plain replies, grown turn by turn, equals the history rendered at once.
IS_STABLE = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": False,
    "GLM-4.6": False,
    "HuggingFaceTB-SmolLM3-3B": True,
    "LFM2.5-Instruct": True,
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": True,
    "Qwen-Qwen2.5-7B-Instruct": True,
    "Qwen-Qwen3-0.6B": True,
    "Qwen3.5-4B": False,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": False,
    "google-gemma-2-2b-it": True,
    "ibm-granite-granite-4.0": True,
    "llama-cpp-rwkv-world": False,
    "meta-llama-Llama-3.1-8B-Instruct": True,
    "microsoft-Phi-3.5-mini-instruct": True,
    "mistralai-Mistral-Nemo-Instruct-2407": True,
    "openai-gpt-oss-120b": False,
}


def published(name: str) -> ChatTemplate:
    source = (REFERENCE / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


@needs_reference
def test_every_published_template_is_classified():
    assert {path.stem for path in (REFERENCE / "templates").glob("*.jinja")} == set(IS_STABLE)


@needs_reference
@pytest.mark.parametrize("name", IS_STABLE)
def test_published_template_renders_and_classifies(name: str):
    template = published(name)
    text = template.render([SYSTEM, USER, REPLY, NEXT], add_generation_prompt=True)
    for message in (SYSTEM, USER, REPLY, NEXT):
        assert message.content in text
    assert text.index("Hello") < text.index("Hi.") < text.index("Bye")
    assert template.is_prefix_stable == IS_STABLE[name]
    assert not template.is_fallback


@needs_reference
@pytest.mark.parametrize("name", IS_STABLE)
def test_text_after_a_message_completes_what_a_log_holds(name: str):
    template = published(name)
    after = template.text_after([USER, REPLY, NEXT], 2, add_generation_prompt=True)
    whole = template.render([USER, REPLY, NEXT], add_generation_prompt=True)
    assert whole.endswith("Hi." + after)
    assert "Bye" in after


def test_chatml_renders_exactly():
    template = ChatTemplate(CHATML)
    assert template.render([SYSTEM, USER], add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert template.closing_of([USER, REPLY]) == "<|im_end|>\n"
    assert template.is_prefix_stable


@needs_reference
def test_system_text_goes_into_the_first_user_message_where_there_is_no_system_role():
    template = published("google-gemma-2-2b-it")
    assert not template.has_system_role
    text = template.render([SYSTEM, USER], add_generation_prompt=True)
    assert text == "<s><start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\n"


@needs_reference
def test_eos_after_the_whole_text_is_no_part_of_history():
    template = published("microsoft-Phi-3.5-mini-instruct")
    history = template.render([USER, REPLY], add_generation_prompt=False)
    assert template.render([USER, REPLY, NEXT], add_generation_prompt=False).startswith(history)


def test_a_file_without_template_gets_a_plain_one(tmp_path: Path):
    template = ChatTemplate.from_gguf(vocabularies.byte_level(tmp_path / "v.gguf"))
    assert template.is_fallback
    assert template.is_prefix_stable
    assert template.stop_strings
    assert template.render([USER, REPLY, NEXT], add_generation_prompt=True) == (
        "### User:\nHello\n\n### Assistant:\nHi.\n\n### User:\nBye\n\n### Assistant:\n"
    )
    assert template.closing_of([USER, REPLY]) == "\n\n"


def test_template_and_tokens_come_from_the_file(tmp_path: Path):
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    file = vocabularies.byte_level(tmp_path / "v.gguf", **{"tokenizer.chat_template": source})
    text = ChatTemplate.from_gguf(file).render([USER], add_generation_prompt=True)
    assert text == "<|endoftext|>Hello<|im_end|>"


def test_json_is_written_as_templates_expect():
    template = ChatTemplate("{{ messages[0] | tojson }}")
    text = template.render([ChatMessage("user", "<\u00e9 'x'>")], add_generation_prompt=False)
    assert text == '{"role": "user", "content": "<\u00e9 \'x\'>"}'


def test_what_templates_of_others_use_is_there():
    template = ChatTemplate(
        "{%- for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
        "{% generation %}{{ m.content | trim }}{% endgeneration %}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ '-' * 3 }}{{ ['a', 'b'] | join('+') }}"
        "{{ 'aXa'.replace('X', '-') }}{{ 'x' ~ 1 ~ none }}{{ {'k': [1]} | tojson(indent=1) }}"
    )
    text = template.render([ChatMessage("user", " hi ")], add_generation_prompt=False)
    assert text == 'hi4---a+ba-ax1None{\n "k": [\n  1\n ]\n}'


def test_a_refusal_carries_the_templates_own_words():
    template = ChatTemplate("{{ raise_exception('no such thing') }}")
    with pytest.raises(ChatTemplateError) as caught:
        template.render([USER], add_generation_prompt=True)
    assert "no such thing" in caught.value.detail


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'x }}", "{% for %}", "{{ x | nofilter }}"])
def test_a_broken_template_is_a_typed_error(source: str):
    with pytest.raises(ChatTemplateError):
        ChatTemplate(source)


HOSTILE = {
    "attributes of python": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "format string": "{{ '{0.__class__}'.format(messages) }}",
    "changing messages": "{{ messages.append(1) }}",
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "exploding recursion": "{% macro m(n) %}{% if n %}{% set a = m(n - 1) %}{% set b = m(n - 1) %}"
    "{% endif %}{% endmacro %}{{ m(60) }}",
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "huge range": "{{ range(999999999) | list }}",
    "loops over text": "{% set s = 'x' * 9999 %}{% for a in s %}{% for b in s %}{% for c in s %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "long text": "{{ 'x' * 999999999 }}",
    "long list": "{{ [0] * 999999999 }}",
    "wide text": "{{ 'x'.ljust(999999999) }}",
    "wide filter": "{{ 'x' | center(999999999) }}",
    "wide number": "{{ '%999999999d' % 1 }}",
    "wide by argument": "{{ '%*d' % (999999999, 1) }}",
    "wide indent": "{{ 'a\nb' | indent(999999999) }}",
    "wide json": "{{ messages | tojson(indent=999999999) }}",
    "huge power": "{{ 9 ** 9 ** 9 }}",
    "doubling by plus": "{% set ns = namespace(s='x') %}{% for i in range(64) %}"
    "{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "doubling by tilde": "{% set ns = namespace(s='x') %}{% for i in range(64) %}"
    "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "doubling by join": "{% set ns = namespace(s='x') %}{% for i in range(64) %}"
    "{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
    "doubling by method": "{% set ns = namespace(s='x') %}{% for i in range(64) %}"
    "{% set ns.s = ''.join([ns.s, ns.s]) %}{% endfor %}",
    "doubling by replace": "{% set ns = namespace(s='x') %}{% for i in range(64) %}"
    "{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
    "doubling by output": "{% set ns = namespace(s='x') %}{% for i in range(64) %}"
    "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
    "endless output": "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    "division": "{{ 1 // 0 }}",
    "other files": "{% include '/etc/passwd' %}",
    "other templates": "{% extends 'x' %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_template_is_stopped_in_time(name: str):
    started = time.thread_time()
    with pytest.raises(ChatTemplateError):
        ChatTemplate(HOSTILE[name]).render([USER], add_generation_prompt=True)
    assert time.thread_time() - started < 15


def test_private_attributes_are_not_there():
    template = ChatTemplate("{{ raise_exception.__globals__ }}{{ messages.__class__ }}")
    assert template.render([USER], add_generation_prompt=True) == ""

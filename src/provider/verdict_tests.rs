//! Tests of interpreting errors of many servers. The JSON shapes are theirs; the wording is not.

use serde_json::{Value, json};

use super::*;

fn judged(status: u16, body: &Value, size: Size) -> RefusalKind {
    let body = match body {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    judge(&Refusal::read(status, &body), size)
}

fn openai(message: &str, kind: &str, code: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

#[test]
fn a_conversation_that_is_too_long_is_known_in_the_words_of_each_provider() {
    let invalid = "invalid_request_error";
    for (who, status, body) in [
        (
            "OpenAI",
            400,
            openai(
                "The maximum context length here is 128000 tokens; the messages have 131072.",
                invalid,
                "context_length_exceeded",
            ),
        ),
        (
            "OpenAI, by name alone",
            400,
            openai("No.", invalid, "context_length_exceeded"),
        ),
        (
            "Anthropic",
            400,
            json!({"type": "error", "error": {"type": invalid, "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
        ),
        (
            "Anthropic, with the answer",
            400,
            json!({"type": "error", "error": {"type": invalid, "message": "input length and `max_tokens` are over the context limit: 190000 + 21000 > 200000"}}),
        ),
        (
            "Anthropic, by size",
            413,
            json!({"type": "error", "error": {"type": "request_too_large", "message": "Over the size of a request"}}),
        ),
        (
            "GLM",
            400,
            json!({"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
        ),
        (
            "GLM, in Chinese",
            400,
            json!({"error": {"code": "1261", "message": "Prompt 超长"}}),
        ),
        (
            "Moonshot",
            400,
            json!({"error": {"type": invalid, "message": "Invalid request: it is over the model token limit: 8192 (requested: 12345)"}}),
        ),
        (
            "Gemini",
            400,
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1189042) is above the maximum number of tokens allowed (1048576)."}}]),
        ),
        (
            "Mistral",
            400,
            json!({"object": "error", "type": "invalid_request_prompt", "code": "3051", "message": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}),
        ),
        (
            "DeepSeek",
            400,
            openai(
                "The maximum context length of this model is 65536 tokens. You asked for 70000 (66000 in the messages, 4000 in the completion).",
                invalid,
                invalid,
            ),
        ),
        (
            "Ollama",
            400,
            json!({"error": "the input length exceeds the context length"}),
        ),
        (
            "llama.cpp",
            400,
            json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9000 tokens) is over the available context size (8192 tokens)", "n_prompt_tokens": 9000, "n_ctx": 8192}}),
        ),
        (
            "llama.cpp, as 500",
            500,
            json!({"error": {"message": "the request is over the available context size"}}),
        ),
        (
            "vLLM",
            400,
            json!({"object": "error", "type": "BadRequestError", "code": 400, "message": "The prompt (total length 12345) is too long to fit into the model (context length 4096)."}),
        ),
        (
            "OpenRouter",
            400,
            json!({"error": {"code": 400, "message": "The maximum context length of this endpoint is 131072 tokens. You asked for about 140000 tokens.", "metadata": {"provider_name": "X"}}}),
        ),
        (
            "OpenRouter, wrapped",
            400,
            json!({"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": "{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8\"}}"}}}),
        ),
        (
            "LiteLLM",
            400,
            json!({"error": {"type": "ContextWindowExceededError", "message": "litellm: bad request", "code": "400"}}),
        ),
        (
            "xAI",
            400,
            json!({"code": "Client specified an invalid argument", "error": "The maximum prompt length of this model is 131072 but the request has 150000 tokens."}),
        ),
        (
            "TGI",
            422,
            json!({"error_type": "validation", "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens: input is too long"}),
        ),
        (
            "Copilot",
            400,
            json!({"error": {"code": "model_max_prompt_tokens_exceeded", "message": "prompt token count of 130000 is over the limit of 128000"}}),
        ),
        (
            "Bedrock",
            400,
            json!({"message": "Input is too long for requested model."}),
        ),
        (
            "DashScope",
            400,
            openai(
                "Range of input length should be [1, 30720]",
                invalid,
                "invalid_parameter_error",
            ),
        ),
        (
            "MiniMax",
            400,
            json!({"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}),
        ),
        (
            "a proxy before it",
            413,
            Value::from("<html><title>413 Request Entity Too Large</title></html>"),
        ),
    ] {
        assert_eq!(
            judged(status, &body, Size::default()),
            RefusalKind::TooLong,
            "{who}"
        );
    }
}

#[test]
fn words_that_are_on_no_list_are_judged_by_numbers_and_by_the_size_of_the_request() {
    // About 10000 tokens.
    let size = Size {
        bytes: 40_000,
        window: 100_000,
    };
    let small = Size {
        bytes: 1_200,
        window: 100_000,
    };
    let large = Size {
        bytes: 390_000,
        window: 100_000,
    };
    let numbers =
        json!({"error": {"message": "Your request of 11210 tokens exceeds what we allow: 8000"}});
    assert_eq!(judged(400, &numbers, size), RefusalKind::TooLong);
    assert_eq!(
        judged(400, &numbers, small),
        RefusalKind::Other,
        "11210 is not its own length"
    );
    let vague = json!({"error": {"message": "The request body exceeds the maximum"}});
    assert_eq!(judged(400, &vague, small), RefusalKind::Other);
    assert_eq!(judged(400, &vague, large), RefusalKind::TooLong);
    for silent in [json!({}), Value::from(""), Value::from("Bad Request")] {
        assert_eq!(judged(400, &silent, small), RefusalKind::Other, "{silent}");
        assert_eq!(
            judged(400, &silent, large),
            RefusalKind::TooLong,
            "{silent}"
        );
    }
    // Another error, however long the request is.
    for other in [
        json!({"error": {"message": "Unknown model"}}),
        json!({"error": {"message": "messages.3: `tool_use` ids were found without `tool_result` blocks"}}),
        json!({"error": {"message": "Invalid schema for function 'x'"}}),
    ] {
        assert_eq!(judged(400, &other, large), RefusalKind::Other, "{other}");
    }
}

#[test]
fn a_limit_for_a_span_of_time_never_shortens_a_conversation() {
    for (who, status, body) in [
        (
            "Bedrock, a day",
            429,
            json!({"message": "Too many tokens per day, please wait before trying again."}),
        ),
        (
            "Bedrock through a proxy",
            400,
            json!({"message": "Too many tokens per day, please wait before trying again."}),
        ),
        (
            "a minute",
            400,
            json!({"error": {"message": "Too many tokens per minute for the prompt", "code": "x"}}),
        ),
        (
            "OpenAI",
            429,
            openai(
                "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.",
                "tokens",
                "rate_limit_exceeded",
            ),
        ),
        (
            "Anthropic",
            429,
            json!({"type": "error", "error": {"type": "rate_limit_error", "message": "over the limit of 40,000 input tokens per minute; reduce the prompt length"}}),
        ),
        (
            "Gemini",
            429,
            json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You are over your current quota, please check your plan and billing details.", "details": [{"retryDelay": "33s"}]}}]),
        ),
        ("plain words", 429, Value::from("slow down")),
        ("nothing", 429, Value::from("")),
        (
            "overloaded",
            529,
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        ),
        (
            "as 500",
            500,
            json!({"error": {"message": "The server is overloaded"}}),
        ),
        (
            "loading",
            503,
            json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
        ),
    ] {
        assert_eq!(
            judged(status, &body, Size::default()),
            RefusalKind::Busy,
            "{who}"
        );
    }
    for (who, status, body) in [
        (
            "OpenAI",
            429,
            openai(
                "Request too large for x on tokens per min (TPM): Limit 30000, Requested 45000.",
                "tokens",
                "rate_limit_exceeded",
            ),
        ),
        (
            "Groq",
            413,
            openai(
                "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 12000, please reduce your message size",
                "tokens",
                "rate_limit_exceeded",
            ),
        ),
    ] {
        assert_eq!(
            judged(status, &body, Size::default()),
            RefusalKind::OverAllowance,
            "{who}"
        );
    }
}

#[test]
fn an_account_without_credit_is_known_by_status_name_and_words() {
    for (who, status, body) in [
        (
            "OpenAI",
            429,
            openai(
                "Over your current quota, please check your plan and billing details.",
                "insufficient_quota",
                "insufficient_quota",
            ),
        ),
        (
            "OpenAI, a hard limit",
            400,
            openai(
                "Billing hard limit has been reached",
                "invalid_request_error",
                "billing_hard_limit_reached",
            ),
        ),
        (
            "Anthropic",
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low for this API. Purchase credits under Plans."}}),
        ),
        (
            "Anthropic, a limit of one's own",
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "You are over your API usage limits. Access comes back on 2026-12-01."}}),
        ),
        (
            "DeepSeek",
            402,
            json!({"error": {"message": "Insufficient Balance", "type": "unknown_error"}}),
        ),
        (
            "OpenRouter",
            402,
            json!({"error": {"code": 402, "message": "This request needs more credits, or fewer max_tokens"}}),
        ),
        (
            "GLM",
            429,
            json!({"error": {"code": "1113", "message": "No resource package. Please recharge."}}),
        ),
        (
            "Moonshot",
            403,
            json!({"error": {"type": "exceeded_current_quota_error", "message": "The account is suspended, check your plan"}}),
        ),
        (
            "LiteLLM",
            400,
            json!({"error": {"type": "budget_exceeded", "message": "Budget has been exceeded! Current cost: 2, max budget: 1"}}),
        ),
        ("plain words", 400, Value::from("insufficient credits")),
        (
            "SiliconFlow",
            400,
            json!({"code": 30001, "message": "Sorry, your account balance is insufficient", "data": null}),
        ),
        (
            "an account in debt",
            400,
            openai("Your account is in arrears. Top up to continue.", "x", "x"),
        ),
        (
            "a trial",
            400,
            openai(
                "Your free trial has ended. Please upgrade.",
                "invalid_request_error",
                "x",
            ),
        ),
        (
            "invoices",
            412,
            openai(
                "Account suspended because of unpaid invoices",
                "x",
                "account_suspended",
            ),
        ),
        (
            "with the status of a wrong key",
            401,
            openai("You have no credits left on this account", "x", "x"),
        ),
        (
            "the reverse order",
            400,
            Value::from("The remaining funds are not enough"),
        ),
        (
            "a name alone",
            400,
            openai("No.", "x", "balance_not_enough"),
        ),
        (
            "used up",
            500,
            Value::from("quota of this workspace is exhausted"),
        ),
        (
            "plain words, 403",
            403,
            Value::from("Your prepaid balance is used up"),
        ),
        ("no words at all", 402, Value::from("")),
        (
            "a web page",
            402,
            Value::from("<html>Payment Required</html>"),
        ),
    ] {
        assert_eq!(
            judged(status, &body, Size::default()),
            RefusalKind::NoCredit,
            "{who}"
        );
    }
    for (status, body) in [
        (
            401,
            json!({"error": {"message": "Invalid API key", "code": "invalid_api_key"}}),
        ),
        (
            400,
            json!({"error": {"message": "Invalid schema for function 'billing_lookup'"}}),
        ),
        (
            400,
            json!({"error": {"message": "tool_calls has not enough results. The brackets are unbalanced"}}),
        ),
        (
            400,
            json!({"error": {"message": "insufficient permissions for this model"}}),
        ),
        (
            400,
            json!({"error": {"message": "max_tokens is too low. A load balancer cut it"}}),
        ),
        (
            404,
            json!({"error": {"message": "No such model", "code": "model_not_found"}}),
        ),
    ] {
        assert_eq!(
            judged(status, &body, Size::default()),
            RefusalKind::Other,
            "{body}"
        );
    }
}

//! Settings, both ways.

use serde_json::json;
use throughline_canonical::{
    Amount, Effort, Loss, Message, Output, Role, Show, ThinkingSetting, ToolChoice,
};

use super::*;

fn with(name: &str, value: &Value) -> Lossy<Request> {
    let mut body = json!({"contents": [{"parts": [{"text": "x"}]}]});
    body[name] = value.clone();
    read(&body)
}

fn asking(change: impl FnOnce(&mut Request)) -> Request {
    let mut request = Request {
        model: "m".to_owned(),
        messages: vec![Message {
            role: Role::User,
            content: vec![throughline_canonical::Block::text("x")],
        }],
        ..Request::default()
    };
    change(&mut request);
    request
}

#[test]
fn thinking_goes_both_ways() {
    let effort = |effort| Some(Amount::Effort { effort });
    let budget = |tokens| Some(Amount::Budget { tokens });
    for (config, amount, show) in [
        (json!({"thinkingLevel": "MINIMAL"}), effort(Effort::Minimal), None),
        (json!({"thinkingLevel": "LOW"}), effort(Effort::Low), None),
        (json!({"thinkingLevel": "MEDIUM"}), effort(Effort::Medium), None),
        (
            json!({"thinkingLevel": "HIGH", "includeThoughts": true}),
            effort(Effort::High),
            Some(Show::Summary),
        ),
        (json!({"thinkingBudget": 0}), Some(Amount::Off), None),
        (json!({"thinkingBudget": -1}), Some(Amount::Adaptive { effort: None }), None),
        (
            json!({"thinkingBudget": 2048, "includeThoughts": false}),
            budget(2048),
            Some(Show::Hidden),
        ),
        (json!({"includeThoughts": true}), None, Some(Show::Summary)),
    ] {
        let lossy = with("generationConfig", &json!({"thinkingConfig": config}));
        assert_eq!(lossy.value.thinking, ThinkingSetting { amount, show }, "{config}");
        let (written, body) = write(&lossy.value, "");
        assert_eq!(body["generationConfig"]["thinkingConfig"], config);
        assert_eq!(written.losses, []);
    }
    for config in
        [json!({"thinking_level": "low"}), json!({"thinking_level": "LOW", "thinkingBudget": null})]
    {
        let lossy = with("generation_config", &json!({"thinking_config": config}));
        assert_eq!(lossy.value.thinking.amount, effort(Effort::Low));
    }
    let none = with(
        "generationConfig",
        &json!({"thinkingConfig": {"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}}),
    );
    assert_eq!(none.value.thinking.amount, None);
}

/// The provider refuses it, but opencode sends it.
#[test]
fn a_level_goes_before_a_budget() {
    let config = json!({"thinkingConfig": {"thinkingBudget": 8000, "includeThoughts": true, "thinkingLevel": "high"}});
    let lossy = with("generationConfig", &config);
    assert_eq!(lossy.value.thinking.amount, Some(Amount::Effort { effort: Effort::High }));
    assert_eq!(lossy.losses, [Loss::SettingAdapted { setting: "thinking", reason: "effort" }]);
}

#[test]
fn thinking_that_has_no_place_is_adapted_and_told() {
    let adapted = |setting, reason| vec![Loss::SettingAdapted { setting, reason }];
    let adaptive = Amount::Adaptive { effort: Some(Effort::Low) };
    for (amount, show, config, losses) in [
        (
            Some(Amount::Effort { effort: Effort::Max }),
            None,
            json!({"thinkingLevel": "HIGH"}),
            adapted("thinking", "effort"),
        ),
        (Some(adaptive), None, json!({"thinkingLevel": "LOW"}), adapted("thinking", "effort")),
        (
            Some(Amount::On),
            Some(Show::Summary),
            json!({"includeThoughts": true}),
            adapted("thinking", "default"),
        ),
        (
            None,
            Some(Show::Full),
            json!({"includeThoughts": true}),
            adapted("thinking.show", "summaries"),
        ),
    ] {
        let request = asking(|request| request.thinking = ThinkingSetting { amount, show });
        let (written, body) = write(&request, "");
        assert_eq!(body["generationConfig"]["thinkingConfig"], config);
        assert_eq!(written.losses, losses);
    }
}

#[test]
fn tool_choice_goes_both_ways() {
    for (config, choice) in [
        (json!({"mode": "AUTO"}), Some(ToolChoice::Auto)),
        (json!({"mode": "NONE"}), Some(ToolChoice::None)),
        (json!({"mode": "ANY"}), Some(ToolChoice::Required)),
        (
            json!({"mode": "ANY", "allowedFunctionNames": ["f"]}),
            Some(ToolChoice::Named { name: "f".to_owned() }),
        ),
        (json!({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}), Some(ToolChoice::Required)),
        (json!({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}), None),
        (json!({"mode": "AUTO", "streamFunctionCallArguments": true}), Some(ToolChoice::Auto)),
    ] {
        let lossy = with("toolConfig", &json!({"functionCallingConfig": config}));
        assert_eq!(lossy.value.tool_choice, choice, "{config}");
        let (written, body) = write(&lossy.value, "vertex");
        assert_eq!(body["toolConfig"]["functionCallingConfig"], config);
        assert_eq!(written.losses, []);
    }
    let lossy = with(
        "tool_config",
        &json!({"function_calling_config": {"mode": "any", "allowed_function_names": ["f"]}}),
    );
    assert_eq!(lossy.value.tool_choice, Some(ToolChoice::Named { name: "f".to_owned() }));
    // Names that fit no mode any more are left out.
    let mut request = with(
        "toolConfig",
        &json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}}),
    )
    .value;
    request.tool_choice = Some(ToolChoice::Auto);
    let (written, body) = write(&request, "");
    assert_eq!(body["toolConfig"], json!({"functionCallingConfig": {"mode": "AUTO"}}));
    assert_eq!(written.losses.len(), 1);
}

#[test]
fn the_shape_of_an_answer_goes_both_ways() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let shaped = Output::Schema { name: None, schema: schema.clone(), strict: None };
    for (config, output) in [
        (json!({"responseMimeType": "application/json"}), Output::Json),
        (
            json!({"responseMimeType": "application/json", "responseJsonSchema": schema}),
            shaped.clone(),
        ),
        (
            json!({"responseMimeType": "text/x.enum", "responseJsonSchema": {"enum": ["a"]}}),
            Output::Text,
        ),
    ] {
        let lossy = with("generationConfig", &config);
        assert_eq!(lossy.value.output, output, "{config}");
        assert_eq!(write(&lossy.value, "").1["generationConfig"], config);
    }
    let own = json!({"response_mime_type": "application/json",
        "response_schema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}});
    assert_eq!(with("generationConfig", &own).value.output, shaped);
    assert_eq!(
        with("generationConfig", &json!({"responseMimeType": "text/plain"})).value.output,
        Output::Text
    );
}

#[test]
fn sampling_and_limits_go_both_ways() {
    let config = json!({"temperature": 0.5, "topP": 0.25, "topK": 40, "presencePenalty": -1.5, "frequencyPenalty": 1.5,
        "seed": -7, "maxOutputTokens": 2048, "stopSequences": ["a", "b"]});
    let lossy = with("generationConfig", &config);
    assert!(lossy.value.extra.is_empty());
    assert_eq!(lossy.value.sampling.seed, Some(-7));
    assert_eq!(write(&lossy.value, "").1["generationConfig"], config);
    let spelled =
        with("generationConfig", &json!({"max_output_tokens": "2048", "seed": "9", "top_k": 3.0}));
    assert_eq!(
        (spelled.value.max_tokens, spelled.value.sampling.seed, spelled.value.sampling.top_k),
        (Some(2048), Some(9), Some(3))
    );
}

//! Settings and tools, member by member.

use serde_json::{Value, json};
use throughline_canonical::{Amount, Effort, Output, Show, Tool, ToolChoice};

use super::crossing::{anthropic_extra, both_ways, reads, request, writes};
use super::write_request;

#[test]
fn settings_cross_both_ways() {
    both_ways(&json!({}), |_| {});
    both_ways(&json!({"stream": true}), |request| request.stream = true);
    both_ways(&json!({"max_tokens": 0}), |request| {
        request.max_tokens = Some(0);
    });
    both_ways(&json!({"system": "be terse"}), |request| {
        request.system = vec!["be terse".to_owned()];
    });
    let blocks = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]);
    both_ways(&json!({"system": blocks}), |request| {
        request.system = vec!["one".to_owned(), "two".to_owned()];
    });
    both_ways(&json!({"stop_sequences": ["END", "\n\nHuman:"]}), |request| {
        request.stop = vec!["END".to_owned(), "\n\nHuman:".to_owned()];
    });
    both_ways(&json!({"metadata": {"user_id": "u"}}), |request| {
        request.user = Some("u".to_owned());
    });
    let sampling = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 40});
    both_ways(&sampling, |request| {
        request.sampling.temperature = Some(0.5);
        request.sampling.top_p = Some(0.9);
        request.sampling.top_k = Some(40);
    });
    let format =
        json!({"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}});
    both_ways(&json!({"output_config": {"format": format}}), |request| {
        request.output = Output::Schema {
            name: None,
            schema: json!({"type": "object", "additionalProperties": false}),
            strict: None,
        };
    });
    let kept =
        json!({"service_tier": "auto", "container": "c1", "cache_control": {"type": "ephemeral"}});
    both_ways(&kept, |request| anthropic_extra(request, &kept));
    let rest = json!({"metadata": {"user_id": "u", "x": 1}});
    both_ways(&rest, |request| {
        request.user = Some("u".to_owned());
        anthropic_extra(request, &json!({"metadata": {"x": 1}}));
    });
}

#[test]
fn null_is_absent() {
    reads(
        &json!({"system": null, "thinking": null, "output_config": null, "metadata": null, "tools": null,
            "tool_choice": null, "temperature": null, "stop_sequences": null, "stream": null, "container": null}),
        "",
        |_| {},
    );
}

#[test]
fn the_beta_place_of_an_output_format_is_read() {
    let format =
        json!({"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}});
    reads(&json!({"output_format": format}), "", |request| {
        request.output = Output::Schema {
            name: None,
            schema: json!({"type": "object", "additionalProperties": false}),
            strict: None,
        };
    });
}

#[test]
fn every_thinking_setting_crosses_both_ways() {
    let amount = |members: Value, amount: Amount| {
        both_ways(&members, |request| request.thinking.amount = Some(amount));
    };
    amount(
        json!({"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        Amount::Budget { tokens: 2048 },
    );
    amount(json!({"thinking": {"type": "disabled"}}), Amount::Off);
    amount(json!({"thinking": {"type": "adaptive"}}), Amount::Adaptive { effort: None });
    for effort in super::super::EFFORTS {
        amount(
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": effort.word()}}),
            Amount::Adaptive { effort: Some(effort) },
        );
        amount(json!({"output_config": {"effort": effort.word()}}), Amount::Effort { effort });
    }
    for (display, show) in [("summarized", Show::Summary), ("omitted", Show::Hidden)] {
        let members = json!({"thinking": {"type": "adaptive", "display": display}});
        both_ways(&members, |request| {
            request.thinking.amount = Some(Amount::Adaptive { effort: None });
            request.thinking.show = Some(show);
        });
    }
    let members =
        json!({"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "updates"}});
    both_ways(&members, |request| {
        request.thinking.amount = Some(Amount::Budget { tokens: 2048 });
        request.thinking.show = Some(Show::Summary);
        anthropic_extra(request, &json!({"thinking": {"display": "updates"}}));
    });
    both_ways(&json!({"thinking": {"type": "between_tools"}}), |request| {
        request.thinking.amount = Some(Amount::Off);
        anthropic_extra(request, &json!({"thinking": {"type": "between_tools"}}));
    });
    let binding = json!({"prefix_mismatch_behavior": "drop_block"});
    let members = json!({"thinking": {"type": "adaptive", "block_binding": binding}});
    both_ways(&members, |request| {
        request.thinking.amount = Some(Amount::Adaptive { effort: None });
        anthropic_extra(request, &json!({"thinking": {"block_binding": binding}}));
    });
    both_ways(&json!({"thinking": {"block_binding": binding}}), |request| {
        anthropic_extra(request, &json!({"thinking": {"block_binding": binding}}));
    });
    // Effort is about the answer as well, and stays where the amount has no room for it.
    let members = json!({
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {"effort": "low"},
    });
    both_ways(&members, |request| {
        request.thinking.amount = Some(Amount::Budget { tokens: 2048 });
        anthropic_extra(request, &json!({"output_config": {"effort": "low"}}));
    });
}

#[test]
fn thinking_settings_of_others_find_a_form() {
    let setting = |members: Value, losses: &str, amount: Amount, show: Option<Show>| {
        writes(&members, losses, |request| {
            request.thinking.amount = Some(amount);
            request.thinking.show = show;
        });
    };
    let effort = |effort| Amount::Effort { effort };
    setting(json!({"thinking": {"type": "adaptive"}}), "", Amount::On, None);
    setting(
        json!({"output_config": {"effort": "low"}}),
        "setting_adapted=thinking;reason=effort",
        effort(Effort::Minimal),
        None,
    );
    setting(
        json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}),
        "",
        effort(Effort::High),
        Some(Show::Full),
    );
    setting(json!({"thinking": {"type": "disabled"}}), "", Amount::Off, Some(Show::Hidden));
    writes(&json!({}), "part_omitted=thinking.show;reason=off", |request| {
        request.thinking.show = Some(Show::Summary)
    });
    // What was kept beside a setting does not speak for the one that took its place.
    writes(&json!({"thinking": {"type": "adaptive", "display": "omitted"}}), "", |request| {
        request.thinking.amount = Some(Amount::On);
        request.thinking.show = Some(Show::Hidden);
        anthropic_extra(
            request,
            &json!({"thinking": {"type": "between_tools", "display": "updates"}, "output_config": {"effort": "low"}}),
        );
    });
    writes(
        &json!({"thinking": {"type": "disabled"}}),
        "part_omitted=thinking.block_binding;reason=off",
        |request| {
            request.thinking.amount = Some(Amount::Off);
            anthropic_extra(request, &json!({"thinking": {"block_binding": {"x": 1}}}));
        },
    );
}

#[test]
fn every_request_names_the_version_that_knows_sampling() {
    let version = ("anthropic-version", "2023-06-01".to_owned());
    let plain = write_request(&request(|_| {})).value;
    assert_eq!(plain.headers, [version]);
    assert_eq!((plain.path.as_str(), plain.query.as_str()), ("/v1/messages", ""));
}

#[test]
fn thinking_between_tools_is_asked_for_by_its_own_mode() {
    let members = json!({"thinking": {"type": "between_tools"}});
    writes(&members, "", crate::dialects::anthropic::think_between_tools);
}

#[test]
fn settings_without_a_place_are_losses() {
    writes(&json!({"temperature": 1.0}), "setting_adapted=temperature;reason=range", |request| {
        request.sampling.temperature = Some(1.7);
    });
    writes(
        &json!({}),
        "part_omitted=seed;reason=no_place, part_omitted=presence_penalty;reason=no_place, \
         part_omitted=frequency_penalty;reason=no_place",
        |request| {
            request.sampling.seed = Some(1);
            request.sampling.presence_penalty = Some(0.1);
            request.sampling.frequency_penalty = Some(0.1);
        },
    );
    writes(&json!({}), "part_omitted=cache_key;reason=no_place", |request| {
        request.cache_key = Some("k".to_owned());
    });
    writes(&json!({}), "setting_adapted=output;reason=json_without_schema", |request| {
        request.output = Output::Json;
    });
    let format = json!({"type": "json_schema", "schema": {}});
    writes(
        &json!({"output_config": {"format": format}}),
        "part_omitted=output.name;reason=no_place, setting_adapted=output.strict;reason=always_strict",
        |request| {
            request.output = Output::Schema {
                name: Some("n".to_owned()),
                schema: json!({}),
                strict: Some(false),
            };
        },
    );
    writes(&json!({"stop_sequences": ["x"]}), "part_omitted=stop;reason=empty", |request| {
        request.stop = vec!["\n\n".to_owned(), "x".to_owned(), String::new()]
    });
    writes(&json!({"max_tokens": 4096}), "setting_adapted=max_tokens;reason=required", |request| {
        request.max_tokens = None
    });
    writes(&json!({}), "part_omitted=extra;reason=foreign_dialect", |request| {
        request.extra.insert("gemini".to_owned(), serde_json::Map::new());
    });
    // What is said twice is not written twice.
    writes(&json!({"top_k": 5}), "", |request| {
        request.sampling.top_k = Some(5);
        anthropic_extra(request, &json!({"top_k": 6, "model": "other"}));
    });
}

#[test]
fn members_of_a_beta_bring_its_header() {
    for (extra, beta) in [
        (json!({"context_management": {}}), "context-management-2025-06-27"),
        (json!({"output_config": {"task_budget": {}}}), "task-budgets-2026-03-13"),
        (json!({"thinking": {"block_binding": {}}}), "thinking-binding-controls-2026-08-01"),
    ] {
        let request = request(|request| anthropic_extra(request, &extra));
        let header = ("anthropic-beta", beta.to_owned());
        assert!(write_request(&request).value.headers.contains(&header), "{extra}");
    }
}

#[test]
fn tools_and_choices_cross_both_ways() {
    let schema = json!({"type": "object", "properties": {"k": {"type": "string"}}, "additionalProperties": false});
    let function = |description: Option<&str>, strict| Tool::Function {
        name: "lookup".to_owned(),
        description: description.map(str::to_owned),
        parameters: schema.clone(),
        strict,
    };
    let tool =
        json!({"name": "lookup", "description": "finds", "input_schema": schema, "strict": true});
    both_ways(&json!({"tools": [tool]}), |request| {
        request.tools = vec![function(Some("finds"), Some(true))];
    });
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    both_ways(&json!({"tools": [search]}), |request| {
        request.tools =
            vec![Tool::Opaque { dialect: "anthropic".to_owned(), value: search.clone() }];
    });
    let tool = json!({"name": "lookup", "input_schema": schema});
    let choice = |choice: Value, read: ToolChoice, parallel: Option<bool>| {
        both_ways(&json!({"tools": [tool], "tool_choice": choice}), |request| {
            request.tools = vec![function(None, None)];
            request.tool_choice = Some(read);
            request.parallel_calls = parallel;
        });
    };
    choice(json!({"type": "auto"}), ToolChoice::Auto, None);
    choice(json!({"type": "none"}), ToolChoice::None, None);
    choice(
        json!({"type": "any", "disable_parallel_tool_use": true}),
        ToolChoice::Required,
        Some(false),
    );
    choice(
        json!({"type": "tool", "name": "lookup", "disable_parallel_tool_use": false}),
        ToolChoice::Named { name: "lookup".to_owned() },
        Some(true),
    );
}

#[test]
fn tools_of_others_find_a_form() {
    let function = |parameters: Value| {
        vec![Tool::Function { name: "f".to_owned(), description: None, parameters, strict: None }]
    };
    let tools = |schema: Value| json!({"tools": [{"name": "f", "input_schema": schema}]});
    let object = json!({"type": "object"});
    let cases = [
        (Value::Null, object.clone(), ""),
        (json!({}), object.clone(), ""),
        (json!({"properties": {}}), json!({"type": "object", "properties": {}}), ""),
        (json!(true), object.clone(), "setting_adapted=tool.parameters;reason=not_an_object"),
    ];
    for (parameters, schema, losses) in cases {
        writes(&tools(schema), losses, |request| {
            request.tools = function(parameters);
        });
    }
    let single = json!({"tools": [{"name": "f", "input_schema": object}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    writes(&single, "", |request| {
        request.tools = function(Value::Null);
        request.parallel_calls = Some(false);
    });
    writes(
        &json!({}),
        "part_omitted=tool;reason=foreign_dialect, setting_adapted=tool_choice;reason=no_tools",
        |request| {
            request.tools = vec![Tool::Opaque {
                dialect: "gemini".to_owned(),
                value: json!({"googleSearch": {}}),
            }];
            request.tool_choice = Some(ToolChoice::Required);
        },
    );
}

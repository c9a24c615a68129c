//! Lists of models.

use serde_json::json;
use throughline_canonical::Fault;

use super::Ollama;
use crate::dialects::Abilities;
use crate::dialects::ollama::Endpoint;
use crate::dialects::ollama::model_card::{read_name, write_details};
use crate::dialects::{ClientDialect, ModelCard, Models, UpstreamDialect};

#[test]
fn a_model_list_survives_a_round_trip() {
    let card = |name: &str| ModelCard { name: name.to_owned(), ..ModelCard::default() };
    let cards = [card("one"), card("two:7b")];
    let list = Ollama.write_models(Models::All(&cards), "").unwrap();
    assert_eq!(Ollama.read_models(&list), cards);
    assert_eq!(list["models"][1]["name"], "two:7b");
    assert_eq!(Ollama.write_models(Models::One(&cards[0]), "").unwrap(), list["models"][0]);
    let answer = json!({"models": [
        {"name": "a", "capabilities": ["completion", "thinking"], "model_info": {"q.context_length": 4096}},
        {"model": "b", "capabilities": ["completion"]},
        {}, 7,
    ]});
    let read = Ollama.read_models(&answer);
    assert_eq!(read.len(), 2);
    assert_eq!((read[0].thinks, read[0].context), (Some(true), Some(4096)));
    assert_eq!((read[1].thinks, read[1].context), (Some(false), None));
    assert_eq!(Ollama.read_models(&json!([])), []);
}

#[test]
fn a_shown_model_has_its_capabilities() {
    let shown = write_details(Abilities { thinks: true, sees: true, context: Some(9) });
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "vision", "thinking"]));
    assert_eq!(shown["model_info"]["throughline.context_length"], 9);
    let plain = write_details(Abilities::default());
    assert_eq!(plain["capabilities"], json!(["completion", "tools"]));
}

#[test]
fn rejects_a_show_request_without_a_model() {
    for (body, found) in [
        (r#"{"model":"m"}"#, Ok("m")),
        (r#"{"name":"m:latest","verbose":true}"#, Ok("m")),
        (r#"{"model":""}"#, Err("is empty")),
        ("{}", Err("is required")),
        (r#"{"model":7}"#, Err("expected a string, found a number")),
    ] {
        let asked = read_name(body.as_bytes());
        let expected = found.map(str::to_owned).map_err(|why| Fault::at("model", why));
        assert_eq!(asked, expected, "{body}");
    }
    assert!(read_name(b"x").is_err());
}

#[test]
fn each_endpoint_has_its_path() {
    for (path, endpoint) in [
        ("/api/tags", Some(Endpoint::Tags)),
        ("/api/show", Some(Endpoint::Show)),
        ("/api/ps", Some(Endpoint::Running)),
        ("/api/version", Some(Endpoint::Version)),
        ("/api/chat", None),
        ("/api/tags/x", None),
    ] {
        assert_eq!(Endpoint::at(path), endpoint, "{path}");
    }
}

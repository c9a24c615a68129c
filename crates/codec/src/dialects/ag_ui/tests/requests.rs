//! Paths, and members that never go to a provider. All other cases are in
//! `corpus/ag_ui/client_request`.

use serde_json::json;

use super::{asked, read};

#[test]
fn only_own_paths_are_operations() {
    use crate::dialects::{ClientDialect, Operation};
    for (path, wanted) in [
        ("/ag-ui", Some(Operation::Generate)),
        ("/ag-ui/", Some(Operation::Generate)),
        ("/ag-ui/glm", Some(Operation::Generate)),
        ("/ag-ui/glm/more", None),
        ("/ag-uii", None),
        ("/v1/ag-ui", None),
    ] {
        assert_eq!(super::AgUi.operation(path), wanted, "{path}");
    }
}

#[test]
fn state_of_a_run_is_not_sent_to_providers() {
    let accepted = read(&asked(&json!({"state": {"row": 7}})));
    assert!(accepted.request.extra.is_empty());
}

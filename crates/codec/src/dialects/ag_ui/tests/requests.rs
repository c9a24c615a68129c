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
fn own_members_are_removed_before_sending() {
    use crate::dialects::ClientDialect;
    let mut request = read(&asked(&json!({"state": {"row": 7}}))).value;
    assert!(!request.extra.is_empty());
    super::AgUi.forget_own_members(&mut request);
    assert!(request.extra.is_empty());
}

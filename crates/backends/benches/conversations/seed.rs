//! Fills a project that the server has made: adds copies of its first two nodes, a question and an
//! answer, to its first branch.

use std::sync::Arc;

use throughline_conversations::chat_seal::{ChatSeal, Field, SealedFields};
use throughline_conversations::store::{Commit, Move, Node, Outcome, Page};
use throughline_sealing::Keyring;

use crate::open;

/// Nodes of one commit.
const BATCH: usize = 500;

/// `seed STORE PROJECT COUNT`
pub(crate) async fn run(store: &str, project: &str, count: usize) {
    let keyring = Keyring::read(&std::env::var("THROUGHLINE_KEYRING").unwrap()).unwrap();
    let seal = ChatSeal::managed(&Arc::new(keyring), project);
    let store = open(store).await;
    let templates = store.project_nodes(project, Page { after: None, limit: 2 }).await.unwrap();
    let branch = store.branches(project).await.unwrap().swap_remove(0);
    let mut made = usize::try_from(store.count_nodes(project).await.unwrap()).unwrap();
    let mut head = branch.head;
    while made < count {
        let from = head.clone();
        let mut nodes = Vec::new();
        for _ in 0..BATCH.min(count - made) {
            let template = &templates[made % templates.len()];
            let node = copy(&seal, template, made, head);
            head = Some(node.id.clone());
            nodes.push(node);
            made += 1;
        }
        let moves = Some(Move { reference: branch.id.clone(), from, to: head.clone() });
        let commit = Commit { nodes, moves, ..Commit::default() };
        assert_eq!(store.commit(commit).await.unwrap(), Outcome::Written);
    }
}

/// A copy of a node, sealed for its own id, which sorts after all ids of nodes that were made before.
fn copy(seal: &ChatSeal, node: &Node, number: usize, parent: Option<String>) -> Node {
    let id = format!("node_f{number:015x}{}", &node.id[node.id.len() - 12..]);
    let seal_again = |field: Field, sealed: &[u8]| {
        let opened = seal.open(field, &node.id, sealed).unwrap();
        seal.seal(field, &id, &opened)
    };
    let mut copy = node.clone();
    let fields = SealedFields::read(&node.sealed).unwrap();
    let content = seal_again(Field::Node, fields.get(Field::Node).unwrap());
    copy.sealed = SealedFields::default().with(Field::Node, content).write();
    if let Some(inside) = &mut copy.in_project {
        for (field, sealed) in [
            (Field::ThinkingContent, &mut inside.sealed_thinking),
            (Field::ThinkingSignature, &mut inside.sealed_signatures),
        ] {
            *sealed = sealed.as_ref().map(|sealed| seal_again(field, sealed));
        }
    }
    Node { id, parent, ..copy }
}

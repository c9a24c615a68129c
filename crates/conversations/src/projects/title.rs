//! The title of a project that was created without one. Its model writes it after the first answer, in a request of
//! its own, so no answer waits for it.

use throughline_canonical::setting::{Amount, ThinkingSetting};
use throughline_canonical::{Block, Message, Request, Role};
use throughline_codec::dialects::stored::Stored;
use throughline_gateway::catalog::Off;

use super::Caller;
use super::answer::Answer;
use super::content::NodeContent;
use super::history::content;
use super::problem::Problem;
use super::project::{project_content, seal_project};
use crate::store::{Detail, NodeRole, NodeStatus, Project};

/// A conversation with more nodes is not given a title any more.
const MAX_NODES: usize = 6;
/// How many characters of the question and of the answer the model reads.
const MAX_EXCERPT: usize = 2000;
/// The longest title, in characters.
const MAX_TITLE: usize = 80;

const PROMPT: &str = "Write a title of at most six words for the conversation below, in its language. Answer with \
                      the title only.";

impl Answer {
    /// Lets the model write a title, if the project has none. A failure changes nothing: the turn log has it, and
    /// the next answer tries again.
    pub(super) async fn write_title(&self, caller: &Caller) {
        let write = async {
            if let Err(problem) = self.try_title(caller).await {
                tracing::debug!(kind = problem.fault().kind.as_str(), "No title was written");
            }
        };
        tokio::select! {
            () = write => {}
            // The key may not be used any more.
            () = self.seal.revoked() => {}
        }
    }

    async fn try_title(&self, caller: &Caller) -> Result<(), Problem> {
        if !self.projects.settings().titles || self.content.room.is_some() {
            return Ok(());
        }
        let Some(project) = self.untitled_project().await? else {
            return Ok(());
        };
        let Some((question, answer)) = self.beginning().await? else {
            return Ok(());
        };
        let request = self.title_request(&question.text(), &answer.text());
        let incoming = self.projects.incoming(caller, &self.content.provider, &self.seal);
        let accepted = Stored::accept(request, Vec::new(), Vec::new());
        let permit = self.projects.gateway.admit()?;
        let reply = self.projects.gateway.turn_events(incoming, accepted, permit).await;
        // The error of a reply that has not begun is in the turn log.
        let Ok(reply) = reply else {
            return Ok(());
        };
        let (_, reply) = reply.fold().await;
        let title = clean(&super::content::text_of(&reply?.content));
        if title.is_empty() {
            return Ok(());
        }
        let edited = self.projects.edit_project(project, |project| {
            let mut content = project_content(&self.seal, project)?;
            // A person may have written one meanwhile.
            if content.title.is_empty() {
                content.title.clone_from(&title);
                seal_project(&self.seal, project, &content);
            }
            Ok(())
        });
        edited.await.map(drop)
    }

    async fn untitled_project(&self) -> Result<Option<Project>, Problem> {
        let project = self.projects.sealed_store.store.project(&self.content.project).await?;
        let Some(project) = project else {
            return Ok(None);
        };
        let has_title = !project_content(&self.seal, &project)?.title.is_empty();
        Ok(Some(project).filter(|_| !has_title))
    }

    /// The first question and this answer, if the conversation has just begun and the answer says something.
    async fn beginning(&self) -> Result<Option<(NodeContent, NodeContent)>, Problem> {
        let store = &self.projects.sealed_store.store;
        // The node is not there if nothing arrived.
        if store.node(&self.content.node).await?.is_none() {
            return Ok(None);
        }
        let path = store.path(&self.content.node, MAX_NODES + 1, Detail::Content).await?;
        let (Some(first), Some(last)) = (path.first(), path.last()) else {
            return Ok(None);
        };
        let facts = |node: &crate::store::Node| node.in_project.clone().unwrap_or_default().facts;
        let is_beginning = path.len() <= MAX_NODES
            && facts(first).role == NodeRole::User
            && facts(last).status == NodeStatus::Complete;
        if !is_beginning {
            return Ok(None);
        }
        let (question, answer) = (content(&self.seal, first)?, content(&self.seal, last)?);
        // An answer that only calls a tool is not finished.
        Ok((!answer.text().is_empty()).then_some((question, answer)))
    }

    fn title_request(&self, question: &str, answer: &str) -> Request {
        let settings = self.projects.gateway.settings();
        let known = settings.catalog.find_at(&self.content.provider, &self.content.model);
        let is_switchable = known.thinking.is_some() && known.off == Off::Disabled;
        let amount = is_switchable.then_some(Amount::Off);
        let excerpt = |text: &str| text.chars().take(MAX_EXCERPT).collect::<String>();
        let text =
            format!("{PROMPT}\n\nUser: {}\n\nAssistant: {}", excerpt(question), excerpt(answer));
        Request {
            model: self.content.model.clone(),
            messages: vec![Message {
                role: Role::User,
                content: vec![Block::text(text)],
                made: None,
            }],
            thinking: ThinkingSetting { amount, show: None },
            stream: true,
            ..Request::default()
        }
    }
}

/// The first line of what the model wrote, without the marks that models put around titles.
fn clean(answer: &str) -> String {
    let line = answer.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let is_mark = |letter: char| {
        letter.is_whitespace() || "#*`\"'\u{201c}\u{201d}\u{2018}\u{2019}".contains(letter)
    };
    let bare = line.trim_matches(is_mark).trim_end_matches('.').trim_matches(is_mark);
    let letters: Vec<char> = bare.chars().filter(|letter| !letter.is_control()).collect();
    match letters.len() {
        0..=MAX_TITLE => letters.into_iter().collect(),
        _ => {
            let kept: String = letters.into_iter().take(MAX_TITLE - 1).collect();
            format!("{}\u{2026}", kept.trim_end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_loses_its_marks_and_its_length() {
        for (answer, title) in [
            ("Herons on one leg", "Herons on one leg"),
            ("\n\n# **\"Herons on one leg.\"**\nAnd more", "Herons on one leg"),
            ("\u{201c}Why herons rest\u{201d}.", "Why herons rest"),
            ("  \n\t", ""),
            ("a\u{7}b", "ab"),
        ] {
            assert_eq!(clean(answer), title, "{answer:?}");
        }
        let long = clean(&"word ".repeat(40));
        assert!(long.chars().count() <= MAX_TITLE && long.ends_with("word\u{2026}"), "{long}");
    }
}

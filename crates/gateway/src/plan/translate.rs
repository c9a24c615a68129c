//! A request, made ready for one backend.

use std::sync::Arc;

use parking_lot::Mutex;
use throughline_canonical::{
    Amount, Fault, Loss, Message, Prefix, Request, Role, Show, ThinkingSetting, Tool,
};
use throughline_codec::dialects::openai_responses::OpenAiResponses;
use throughline_codec::dialects::{
    self, Operation, Outgoing, ReplyReader, UpstreamDialect, anthropic, ollama, openai_chat,
};
use throughline_codec::text::{Delivery, Evidence, Options, RawTextReader, Recipe, Stage, Tools};

use crate::backend::Backend;
use crate::catalog::{Form, Model, Shows};
use crate::gateway::Gateway;
use crate::history::adapt::{AdaptedHistory, HistoryRules, Sent, open_turn, replays_from};
use crate::history::client_paths::ClientPaths;
use crate::history::normalize::{
    dedupe_tool_results, ensure_user_message, join_turns, results_follow_calls,
};
use crate::history::prefix_guard::{Guarding, place};
use crate::history::recall::{Recall, key_of, keys};
use crate::history::replay_table::{self, Place};
use crate::history::vault_lookup::tell_question;
use crate::plan::thinking_setting;
use crate::relay::call_ids::Ids;
use crate::relay::custom_tools::CustomTools;
use crate::relay::tool_names::ToolNames;
use crate::settings::ToolThinking;
use crate::thinking::guard::Guard;
use crate::thinking::memory::{Question, Target};
use crate::thinking::random;
use crate::turn::Attempt;
use crate::turn::log::KeptBlock;
use crate::unix_ms;
use crate::upstream::refusal_policy::RetryPlan;

/// A request that is ready to go.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// As the client asked it, for the reply.
    pub(crate) asked: Request,
    pub(crate) dialect: &'static dyn UpstreamDialect,
    pub(crate) variant: String,
    pub(crate) model: String,
    pub(crate) outgoing: Outgoing,
    /// Whether the backend counts tokens, where that is what is asked.
    pub(crate) counted: bool,
    pub(crate) blocks: Vec<KeptBlock>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) thinking: ThinkingSetting,
    /// Whether the model is known to show summaries of its thinking.
    pub(crate) summarizes: bool,
    pub(crate) session: u64,
    pub(crate) target: Target,
    /// The thinking that goes out, in order.
    pub(crate) sent: Vec<Sent>,
    /// What the reply will be made under, where prefixes matter.
    pub(crate) prefix: Option<Prefix>,
    /// Whether the provider was asked to drop bound blocks.
    pub(crate) drop_bound: bool,
    /// Where the model's present turn begins.
    pub(crate) open: usize,
    /// What is to be answered.
    pub(crate) question: String,
    /// Ids that a call of the reply must not have.
    pub(crate) ids: Ids,
    /// Tools that went as functions.
    pub(crate) free: CustomTools,
    /// Tools that went under other names.
    pub(crate) names: ToolNames,
}

impl Gateway {
    /// Makes a request ready.
    pub(crate) async fn prepare(
        &self,
        attempt: &Attempt<'_>,
        retry: RetryPlan,
    ) -> Result<Prepared, Fault> {
        let first = retry == RetryPlan::First;
        let said = attempt.read.request()?;
        let client = attempt.read.asked.dialect;
        let mut asked = said.value.clone();
        if client.name() == openai_chat::NAME {
            openai_chat::carry_reasoning_in(&mut asked, &attempt.settings.reasoning_fields);
        }
        let mut request = said.value.clone();
        let mut losses = said.losses.clone();
        let model = attempt.backend.model_for(attempt.read.model.as_deref()).to_owned();
        if model.is_empty() {
            let backend = &attempt.backend.name;
            return Err(Fault::invalid(format!(
                "the request names no model, and backend `{backend}` has no `default_model`; set one, or \
                 name the model in the request"
            )));
        }
        // Whoever leaves the choice to us is told what was chosen.
        if asked.model.is_empty() {
            asked.model.clone_from(&model);
        }
        let known = attempt.settings.catalog.find_at(&attempt.backend.name, &model);
        client.forget_own_members(&mut request);
        let thinks = known.thinking.is_some_and(|form| form != Form::None);
        if thinks && client.default_thinking() && request.thinking.is_unset() {
            request.thinking.amount = Some(Amount::On);
        }
        let shows = known.shows.is_some_and(|shows| shows != Shows::Nothing);
        if known.unasked && shows && client.default_show() && request.thinking.is_unset() {
            request.thinking.show = Some(Show::Summary);
        }
        if !client.returns_call_ids() {
            self.name_calls(&attempt.read.scope, &mut request.messages).await;
        }
        let (dialect, variant) = spoken(attempt.backend, &request, &known);
        let free = CustomTools::carry(&mut request, client, dialect.name(), &mut losses);
        let ids = Ids::new(&request, &random::id());
        join_turns(&mut request.messages);
        if dedupe_tool_results(&mut request.messages) > 0 {
            losses.push(Loss::PartOmitted { part: "tool_result".into(), reason: "repeated" });
        }
        let in_order = ![openai_chat::NAME, ollama::NAME].contains(&dialect.name());
        if !in_order && results_follow_calls(&mut request.messages) {
            losses.push(Loss::SettingAdapted { setting: "tool_result", reason: "goes_first" });
        }
        let elsewhere = request.messages.is_empty() && client.name() == dialect.name();
        if in_order && !elsewhere && ensure_user_message(&mut request) {
            losses.push(Loss::SettingAdapted { setting: "system_message", reason: "user_part" });
        }
        losses.extend(thinking_setting::fit(&mut request, &known, dialect.name(), &variant));

        let target = attempt.target(&known);
        let has_assistant = |message: &Message| message.role == Role::Assistant;
        let answer = self.memory.ask(&Question {
            lineage: attempt.read.lineage,
            target: &target,
            follows_active_backend: attempt.follows_active_backend && first,
            in_conversation: attempt.read.in_conversation && first,
            blocks: &keys(&request),
            has_assistant: request.messages.iter().any(has_assistant),
            now: unix_ms(),
            rules: attempt.settings.thinking,
        });
        let recall = Recall {
            gateway: self,
            target: &target,
            scope: &attempt.read.scope,
            found: Mutex::default(),
            session: answer.session,
            rules: attempt.settings.thinking,
            same_dialect: client.name() == dialect.name(),
            reads_past: replay_table::reads_past(dialect.name(), &variant),
        };
        let open = open_turn(&request.messages);
        let rules = HistoryRules {
            dialect: dialect.name(),
            variant: &variant,
            model: &known,
            retry,
            open,
            replays_from: replays_from(attempt.backend.replay, &request.messages),
        };
        let mut adapted = AdaptedHistory::default();
        let mut verdicts = answer.verdicts.as_slice();
        let mut question = String::new();
        let mut located = ClientPaths::new(attempt.read);
        for (at, message) in request.messages.iter_mut().enumerate() {
            if message.role != Role::Assistant {
                tell_question(message, &mut question);
                continue;
            }
            let blocks = message.content.iter().filter(|block| key_of(block).is_some());
            let sent = blocks.count();
            let (own, rest) = verdicts.split_at(sent.min(verdicts.len()));
            verdicts = rest;
            let past = recall.message(message, &question, own).await;
            question.clear();
            let place = if at >= open { Place::OpenLoop } else { Place::Earlier };
            let told = adapted.blocks.len();
            message.content = rules.message(at, past, place, &mut adapted);
            located.tell(adapted.blocks.get_mut(told..).unwrap_or_default(), sent);
        }
        // What is kept of the past has the client's names, too.
        let names = ToolNames::rename_for(&mut request, dialect, &variant, &mut losses);
        rules.fill(&mut request.messages, &mut adapted);
        rules.mend_open_loop(&mut request, &mut adapted);
        if attempt.read.in_conversation && first {
            self.memory.restored(adapted.restored);
        }
        let mut spoken = variant.clone();
        if adapted.unsigned && dialect.name() == anthropic::NAME {
            "unsigned".clone_into(&mut spoken);
        }

        let to = dialects::Target { model: &model, variant: &spoken };
        let counting = attempt.read.wanted == Operation::CountTokens;
        let write = |request: &Request| {
            let count = counting.then(|| dialect.write_count(request, &to)).flatten();
            let counted = count.is_some();
            let written = count.unwrap_or_else(|| dialect.write_request(request, &to));
            (written, counted)
        };
        let (mut written, counted) = write(&request);
        let guard = match dialect.name() {
            anthropic::NAME => self.guard(attempt.backend, &known),
            _ => Guard::Off,
        };
        let guarding = Guarding { guard, asks: retry == RetryPlan::DropBound };
        let mut guarded = guarding.look(&written.value.body, &mut adapted);
        if guarding.mend(&mut guarded, &mut request, &mut adapted) {
            rules.fill(&mut request.messages, &mut adapted);
            (written, _) = write(&request);
            guarded.prefix = place(&written.value.body, &mut adapted.sent);
        }
        adapted.tell();
        losses.splice(0..0, std::mem::take(&mut adapted.losses));
        let mut outgoing = written.value;
        let interleaved = attempt.settings.thinking.tool_thinking == ToolThinking::Interleaved;
        if interleaved && dialect.name() == anthropic::NAME && !request.tools.is_empty() {
            anthropic::interleave(&request, &mut outgoing);
        }
        for loss in written.losses {
            if !losses.contains(&loss) {
                losses.push(loss);
            }
        }
        Ok(Prepared {
            asked,
            dialect,
            variant: spoken,
            model,
            outgoing,
            counted,
            blocks: adapted.blocks,
            losses,
            thinking: request.thinking,
            summarizes: known.shows == Some(Shows::Summary),
            session: answer.session,
            target,
            sent: adapted.sent,
            prefix: guarded.prefix,
            drop_bound: guarded.asked,
            open,
            question,
            ids,
            free,
            names,
        })
    }
}

/// What is spoken to a backend. OpenAI's models show reasoning, and take it back, only in its newer
/// dialect, which the same address serves; the newest call tools while they think only there.
pub(crate) fn spoken(
    backend: &Backend,
    request: &Request,
    model: &Model,
) -> (&'static dyn UpstreamDialect, String) {
    let official = backend.dialect.name() == openai_chat::NAME
        && openai_chat::variants::find(&backend.variant).official;
    // A client with wishes only the older dialect has words for gets those.
    let bound = request.extra.contains_key(openai_chat::NAME);
    // Of a model that does not think there is nothing to see there.
    let thinks = request.thinking.is_wanted() && !bound && model.thinking != Some(Form::None);
    if official && (thinks || thinking_setting::wants_responses(request, model)) {
        return (&OpenAiResponses, String::new());
    }
    (backend.dialect, backend.variant.clone())
}

impl Prepared {
    /// Reads the reply to it.
    pub(crate) fn reader(
        &self,
        gateway: &Gateway,
        attempt: &Attempt<'_>,
        streamed: bool,
    ) -> Box<dyn ReplyReader> {
        let target = dialects::Target { model: &self.model, variant: &self.variant };
        let reader = self.dialect.reply_reader(&target, streamed);
        let delivery = match streamed {
            true => Delivery::Streamed,
            false => Delivery::Whole,
        };
        let shown = matches!(self.thinking.show, Some(Show::Full | Show::Summary));
        let tags = self.dialect.thinking_tags(&self.variant);
        if let Some(tags) = tags.filter(|_| shown)
            && let Ok(recipe) = Recipe::named(Some(tags), &[])
        {
            let stage = Stage::new(&recipe, Options::default(), delivery);
            return Box::new(RawTextReader::new(reader, stage));
        }
        if !self.dialect.has_raw_text(&self.variant) {
            return reader;
        }
        let raw = &attempt.backend.raw_text;
        let evidence = Evidence {
            family: raw.family.as_deref(),
            model: &self.model,
            thinking: self.thinking.amount.map(|amount| amount != Amount::Off),
        };
        // A family that does not exist was refused at start.
        let Ok(recipe) = evidence.recipe() else {
            return reader;
        };
        let options = Options {
            tools: tools(&self.asked.tools).map(Arc::new),
            on_error: raw.on_error,
            reasoning_format: raw.reasoning_format,
            ..Options::default()
        };
        let mut stage = Stage::new(&recipe, options, delivery);
        if gateway.separating.contains(&attempt.backend.name, &self.model) {
            stage = stage.expecting_answer();
        }
        Box::new(RawTextReader::new(reader, stage))
    }
}

/// The tools that were offered, for the reader of calls in text.
fn tools(tools: &[Tool]) -> Option<Tools> {
    let functions: Vec<_> = tools
        .iter()
        .filter_map(|tool| match tool {
            Tool::Function { name, parameters, .. } => {
                Some(serde_json::json!({"name": name, "parameters": parameters}))
            }
            Tool::Opaque { .. } => None,
        })
        .collect();
    Tools::read(serde_json::Value::from(functions).to_string().as_bytes()).ok()
}

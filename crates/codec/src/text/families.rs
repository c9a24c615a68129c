//! The model families and how each one writes: one row per family, specific names first.

/// A family of models.
#[derive(Debug)]
pub struct Family {
    /// The usual name of the family.
    pub name: &'static str,
    /// A model belongs to the family if its name contains one of these parts.
    pub models: &'static [&'static str],
    /// A model with one of these parts in its name does not belong to the family.
    pub except: &'static [&'static str],
    /// Name of its tag set.
    pub reasoning: Option<&'static str>,
    /// Names of its tool formats.
    pub tools: &'static [&'static str],
    /// Its usual template opens the reasoning in the prompt.
    pub implicit: bool,
    /// Its models forget the closing tag before a call.
    pub call_ends_reasoning: bool,
    /// The tokens that end a turn of its models. At the end of a text they are removed.
    pub turn_ends: &'static [&'static str],
}

const ROW: Family = Family {
    name: "",
    models: &[],
    except: &[],
    reasoning: None,
    tools: &[],
    implicit: false,
    call_ends_reasoning: false,
    turn_ends: &[],
};

const DEEPSEEK: &[&str] = &["<｜end▁of▁sentence｜>"];
const CHATML: &[&str] = &["<|im_end|>"];
const LLAMA_3: &[&str] = &["<|eot_id|>", "<|eom_id|>"];
const LLAMA_4: &[&str] = &["<|eot|>"];
const MISTRAL: &[&str] = &["</s>"];
const GEMMA: &[&str] = &["<turn|>", "<end_of_turn>"];
const COHERE: &[&str] = &["<|END_OF_TURN_TOKEN|>"];
const MINIMAX: &[&str] = &["[e~["];

macro_rules! families {
    ($($name:literal [$($model:literal),*] $($reasoning:literal)? ; $($tool:literal),* ; $($flag:ident $(= $value:expr)?),* ;)*) => {
        &[$(Family {
            name: $name,
            models: &[$($model),*],
            $(reasoning: Some($reasoning),)?
            tools: &[$($tool),*],
            $($flag: families!(@value $($value)?),)*
            ..ROW
        }),*]
    };
    (@value) => { true };
    (@value $value:expr) => { $value };
}

/// All families. The first match counts, so specific names come first.
#[rustfmt::skip]
pub static FAMILIES: &[Family] = families! {
    // name             in the model's name                         tags             formats                            flags
    "deepseek-r1"       ["deepseek-r1"]                             "think";         "deepseek_v3";                     implicit, turn_ends = DEEPSEEK;
    "deepseek-v4.1"     ["deepseek-v4.1"]                           "think";         "deepseek_v41";                    call_ends_reasoning, turn_ends = DEEPSEEK;
    "deepseek-v4"       ["deepseek-v4"]                             "think";         "deepseek_v4";                     call_ends_reasoning, turn_ends = DEEPSEEK;
    "deepseek-v3.2"     ["deepseek-v3.2"]                           "think";         "deepseek_v32";                    call_ends_reasoning, except = &["-exp"], turn_ends = DEEPSEEK;
    "deepseek-v3.1"     ["deepseek-v3.1", "deepseek-v3.2-exp"]      "think";         "deepseek_v31";                    turn_ends = DEEPSEEK;
    "deepseek-v3"       ["deepseek-v3"]                             "think";         "deepseek_v3";                     turn_ends = DEEPSEEK;
    "qwen3-coder"       ["qwen3-coder"]                             "think";         "qwen3_coder";                     call_ends_reasoning, turn_ends = CHATML;
    "qwen3.5"           ["qwen3.5", "qwen3.6", "qwen3.7", "qwen3.8", "qwen3.9", "qwen4"] "think"; "qwen3_coder";        implicit, call_ends_reasoning, turn_ends = CHATML;
    "qwq"               ["qwq"]                                     "think";         "hermes";                          implicit, turn_ends = CHATML;
    "qwen3-thinking"    ["qwen3*thinking"]                          "think";         "hermes";                          implicit, call_ends_reasoning, turn_ends = CHATML;
    "qwen3"             ["qwen3"]                                   "think";         "hermes";                          call_ends_reasoning, turn_ends = CHATML;
    "qwen2.5"           ["qwen2.5", "qwen2"]                        ;                "hermes";                          turn_ends = CHATML;
    "hermes"            ["hermes"]                                  "think";         "hermes";                          ;
    "glm-5"             ["glm-5"]                                   "think";         "glm47";                           call_ends_reasoning;
    "glm-4.7"           ["glm-4.7"]                                 "think";         "glm47";                           call_ends_reasoning;
    "glm-4.5"           ["glm-4.5", "glm-4.6"]                      "think";         "glm45";                           call_ends_reasoning;
    "kimi-k3"           ["kimi-k3"]                                 "kimi_k3";       "kimi_k3";                         implicit, call_ends_reasoning;
    "kimi-k2"           ["kimi-k2"]                                 "think";         "kimi_k2";                         call_ends_reasoning, turn_ends = CHATML;
    "kimi"              ["kimi"]                                    "kimi";          ;                                  ;
    "minimax-m3"        ["minimax-m3"]                              "minimax_m3";    "minimax_m3";                      call_ends_reasoning, turn_ends = MINIMAX;
    "minimax-m2"        ["minimax-m2"]                              "think";         "minimax_m2";                      implicit, call_ends_reasoning, turn_ends = MINIMAX;
    "magistral"         ["magistral"]                               "mistral";       "mistral";                         turn_ends = MISTRAL;
    "ministral-3"       ["ministral-3", "ministral*reasoning", "mistral-small-4"]          "mistral";       "mistral";                         turn_ends = MISTRAL;
    "mistral"           ["mistral", "mixtral", "devstral", "ministral", "codestral"] ; "mistral";                       turn_ends = MISTRAL;
    "llama-nemotron"    ["llama*nemotron"]                          "think"; "nemotron_deci"; turn_ends = LLAMA_3;
    "nemotron-3"        ["nemotron-3"]                              "think";         "qwen3_coder";                     implicit, call_ends_reasoning;
    "llama-4"           ["llama-4", "llama4"]                       ;                "pythonic", "llama3_json";         turn_ends = LLAMA_4;
    "llama-3"           ["llama-3", "llama3", "llama-3.x", "llama-3.1", "llama-3.2", "llama-3.3"] ;                "llama3_json", "llama_function";   turn_ends = LLAMA_3;
    "gpt-oss"           ["gpt-oss"]                                 "gpt_oss";       "gpt_oss";                         ;
    "functiongemma"     ["functiongemma"]                           ;                "functiongemma";                   turn_ends = GEMMA;
    "gemma-4"           ["gemma-4", "gemma4"]                       "gemma4";        "gemma4";                          call_ends_reasoning, turn_ends = GEMMA;
    "granite-4"         ["granite-4"]                               ;                "granite4";                        ;
    "granite-20b"       ["granite-20b"]                             ;                "granite_20b_fc";                  ;
    "granite-3"         ["granite-3"]                               "granite";       "granite";                         ;
    "seed-oss"          ["seed-oss"]                                "seed_oss";      "seed_oss";                        call_ends_reasoning;
    "step-3.5"          ["step-3.5", "step3.5", "step3p5"]          "step3p5";       "step3p5";                         implicit;
    "step3"             ["step3", "step-3"]                         "think";         "step3";                           implicit;
    "hy3"               ["hy3", "hunyuan-3", "hy-v3"]               "hy_v3";         "hy_v3";                           call_ends_reasoning;
    "hy4"               ["hy4", "hunyuan-4", "hy-v4"]               "hy_v4";         "hy_v4";                           call_ends_reasoning;
    "hunyuan-a13b"      ["hunyuan-a13b"]                            "hunyuan_a13b";  "hunyuan_a13b";                    ;
    "ernie-4.5"         ["ernie-4.5*thinking"]                      "ernie45";       "hermes";                          implicit;
    "ernie-4.5-plain"   ["ernie-4.5"]                               "ernie45";       "hermes";                          ;
    "command-a"         ["command-a", "command-r", "c4ai-command"]  "cohere_command"; "cohere_command";                 turn_ends = COHERE;
    "apertus"           ["apertus"]                                 "apertus";       "apertus";                         ;
    "inkling"           ["inkling"]                                 "inkling";       "inkling";                         ;
    "muse-spark"        ["muse-spark"]                              "muse_spark";    "muse_spark";                      ;
    "muse"              ["muse", "muse-glimmer"]                    "muse_glimmer";  "muse_glimmer";                    ;
    "lfm2"              ["lfm2"]                                    ;                "lfm2";                            ;
    "longcat"           ["longcat"]                                 "think";         "longcat";                         ;
    "jamba"             ["jamba"]                                   ;                "jamba";                           ;
    "phi-4-mini"        ["phi-4-mini"]                              ;                "phi4_mini";                       ;
    "xlam"              ["xlam"]                                    "think";         "xlam";                            ;
    "olmo-3"            ["olmo-3"]                                  "think";         "olmo3";                           ;
    "internlm2"         ["internlm2", "intern-s1"]                  "think";         "internlm2";                       ;
    "gigachat3"         ["gigachat3", "gigachat-3"]                 ;                "gigachat3";                       ;
    "minicpm5"          ["minicpm5", "minicpm-5"]                   "think";         "minicpm5";                        turn_ends = CHATML;
    "dots"              ["dots"]                                    "think";         "dots";                            ;
    "sarashina"         ["sarashina"]                               ;                "sarashina";                       ;
    "mimo"              ["mimo"]                                    "think";         "mimo";                            ;
    "poolside"          ["poolside", "laguna"]                      "think";         "poolside_v1";                     ;
    "ling-3"            ["ling-3", "ling3"]                         "think";         "glm47";                           call_ends_reasoning;
    "beam"              ["beam"]                                    "beam";          "beam";                            implicit;
    "apriel"            ["apriel"]                                  "think";         ;                                  ;
};

/// Finds the family of a model by its name.
pub(crate) fn find_for_model(model: &str) -> Option<&'static Family> {
    let model = model.to_ascii_lowercase().replace('_', "-");
    FAMILIES.iter().find(|family| {
        family.models.iter().any(|part| has_part(&model, part))
            && !family.except.iter().any(|part| model.contains(part))
    })
}

/// Whether a name contains this part. A `*` in the part matches anything.
fn has_part(model: &str, part: &str) -> bool {
    match part.split_once('*') {
        None => model.contains(part),
        Some((first, second)) => {
            model.find(first).is_some_and(|at| model[at + first.len()..].contains(second))
        }
    }
}

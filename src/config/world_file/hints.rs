//! What messages say of the maps in `world-config.yaml`: examples, required keys, and keys that people write in the wrong
//! place.

use ghost_domain::Limits;
use ghost_domain::text::nearest_within;

use super::channels::chat_channel;
use crate::price;
use crate::typed::Hints;

/// Keys that belong somewhere else, with the hint for each.
type Misplaced = &'static [(&'static str, &'static str)];

const BUDGET: &str = "{ tokens: 5000 } or { usd_per_day: 2.50 }";
const CRON: &str = "{ agent: lead, name: morning, cron: '0 7 * * 1-5', message: 'Read the mail' }";
const SECRET: &str =
    "the URL may hold a password, so it is never written here: name the variable that holds it with `url_env`";
const TOKEN: &str = "the token is `GHOST_TOKEN`, or the file `token` in the data directory";

/// The hints of each map.
pub static HINTS: [Hints; 22] = [
    Hints { misplaced: &[AT_TOP, AT_THE_TOP], otherwise: Some(within), ..of("WorldConfig") },
    Hints { such_as: "{ id: my-world }", misplaced: &[IN_WORLD, AT_TOP], ..of("WorldSection") },
    Hints { misplaced: &[IN_LIMITS], ..of("Limits") },
    Hints { such_as: "{ world: { tokens: 5_000_000 } }", misplaced: &[IN_BUDGETS], ..of("BudgetsSection") },
    Hints { such_as: BUDGET, misplaced: &[IN_BUDGET], ..of("BudgetSection") },
    Hints {
        such_as: "{ id: lead, archetype: lead }",
        need: &[("id", "lead"), ("archetype", "lead")],
        ..of("AgentSection")
    },
    Hints { such_as: "{ name: desk, agents: [lead] }", need: &[("name", "desk")], ..of("TeamSection") },
    Hints { such_as: "{ every: 30m }", ..of("HeartbeatBlock") },
    Hints {
        misplaced: &[&[("channels", "chat channels are written at the top of the file, under `chat_channels`")]],
        ..of("ChatSection")
    },
    Hints {
        need: &[
            ("input", "input"),
            ("lead", "lead"),
            ("brief", "'Make a briefing of the {files} files in {input}.'"),
            ("result", "output/briefings"),
        ],
        ..of("JobSection")
    },
    Hints { such_as: "{ base: 300000, per_file: 40000, per_token: 3 }", ..of("JobExpectation") },
    Hints {
        such_as: "{ source: toolbox/devtools/toolbox.yaml }",
        need: &[("source", "toolbox/devtools/toolbox.yaml")],
        ..of("ToolboxSection")
    },
    Hints {
        such_as: "{ kind: openai, base_url: 'http://HOST:PORT/v1' }",
        misplaced: &[&[("api_key", "keys are never written here: name the variable that holds it with `api_key_env`")]],
        ..of("ProviderSection")
    },
    price::HINTS,
    Hints { otherwise: Some(chat_channel), ..of("ChannelsSection") },
    Hints {
        such_as: "{ url: 'https://HOST/PATH', secret_env: SHOP_SECRET, agent: lead }",
        need: &[("url", "https://HOST/PATH"), ("secret_env", "SHOP_SECRET"), ("agent", "lead")],
        misplaced: &[&[(
            "secret",
            "secrets are never written here: name the variable that holds it with `secret_env`",
        )]],
        ..of("WebhookSection")
    },
    Hints {
        such_as: "{ members: [lead, writer], gated: true }",
        need: &[("members", "[lead, writer]")],
        misplaced: &[&[
            ("agents", "name them under `members`"),
            ("name", "the key of the entry is the channel's name"),
            ("wake", "set it for all ungated channels: `chat: { wake: … }`"),
        ]],
        ..of("ChannelSection")
    },
    Hints {
        such_as: CRON,
        need: &[("agent", "lead"), ("name", "morning"), ("message", "'Read the mail'")],
        misplaced: &[&[
            ("schedule", "write `cron: '0 7 * * 1-5'`, `every: 1h` or `at: 2027-01-31T18:00:00Z` beside the name"),
            ("timezone", "write `zone`"),
            ("prompt", "write `message`"),
            ("id", "write `name`"),
        ]],
        ..of("CronSection")
    },
    Hints {
        misplaced: &[&[
            ("max", "write `limits: { droids_max: … }`"),
            ("max_depth", "write `limits: { droid_depth_max: … }`"),
            ("depth", "write `limits: { droid_depth_max: … }`"),
            ("timeout_seconds", "the agent that starts a droid sets its time, at most 300 s"),
            ("archive_after", "write `limits: { droid_archive_seconds: … }`"),
        ]],
        ..of("DroidsSection")
    },
    Hints {
        such_as: "{ grpc: 127.0.0.1:7070, http: 127.0.0.1:8080 }",
        misplaced: &[&[
            ("auth_token_env", TOKEN),
            ("token", TOKEN),
            ("allowed_hosts", "write `http: { allowed_hosts: … }` at the top of the file"),
            ("allowed_origins", "write `http: { allowed_origins: … }` at the top of the file"),
        ]],
        ..of("ListenSection")
    },
    Hints {
        such_as: "{ backend: postgres, url_env: GHOST_DATABASE_URL }",
        misplaced: &[&[("url", SECRET), ("dsn", SECRET), ("password", SECRET)]],
        ..of("StorageSection")
    },
    Hints { need: &[("provider", "brave")], ..of("SearchSection") },
];

const fn of(name: &'static str) -> Hints {
    Hints { of: name, ..Hints::NONE }
}

/// Keys that people expect here, with the hint for each: it names the place of the setting.
const AT_TOP: Misplaced = &[
    ("workspace", "write `workspace_dir`"),
    ("database", "SQLite's is in the data directory: write `data_dir`; for PostgreSQL write `storage`"),
    ("dir", "the world's directory is the one that holds this file"),
    ("groups", "privilege groups are written under `tool_privileges`"),
    ("rooms", "chat channels are written under `chat_channels`"),
    ("cron_jobs", "recurring jobs are written under `cron`"),
    ("jobs", "recurring jobs are written under `cron`; the job of `--input` under `job`"),
    ("schedule", "recurring jobs are written under `cron`"),
    ("schedules", "recurring jobs are written under `cron`"),
    ("timers", "recurring jobs are written under `cron`; a timer is set by an agent, or with `ghostctl timer set`"),
];

/// Keys that people write under `world`, with the hint for each.
const IN_WORLD: Misplaced = &[
    ("data_dir", "write it at the top of the file, beside `world`"),
    ("workspace_dir", "write it at the top of the file, beside `world`"),
    ("listen", "write it at the top of the file, beside `world`"),
    ("storage", "write it at the top of the file, beside `world`"),
];

/// Limits of a `config.md` that people write here, with the hint for each.
const IN_LIMITS: Misplaced = &[
    (
        "max_tool_rounds",
        "write `turn_rounds_max`; `max_tool_rounds` belongs under `## Limits` of an archetype's config.md",
    ),
    ("turn_timeout_seconds", "write `turn_seconds`"),
    ("context_window_tokens", "write `context_bytes`: four bytes a token"),
    ("tool_result_chars", "write `result_view_bytes`"),
    ("daily_cost_usd", "write `budgets: { world: { usd_per_day: … } }`"),
];

/// Keys that people write into a budget by mistake, with the hint for each.
const IN_BUDGET: Misplaced = &[
    ("daily_cost_usd", "write `usd_per_day`; `daily_cost_usd` belongs under `## Limits` of an archetype's config.md"),
    ("daily_usd", "write `usd_per_day`"),
    ("usd_daily", "write `usd_per_day`"),
    ("daily_tokens", "write `tokens_per_day`"),
    ("tokens_daily", "write `tokens_per_day`"),
    ("day", "write `tokens_per_day` and `usd_per_day`: daily limits are written beside the others"),
    ("per_day", "write `tokens_per_day` and `usd_per_day`: daily limits are written beside the others"),
    ("daily", "write `tokens_per_day` and `usd_per_day`: daily limits are written beside the others"),
    ("cost_usd", "write `usd`"),
    ("cost", "write `usd`"),
    ("money", "write `usd`"),
    ("dollars", "write `usd`"),
    ("max_tokens", "write `tokens`; how long one answer may be is `max_tokens` under `overrides` or `## LLM`"),
];

/// Keys that people write beside the scopes by mistake, with the hint for each.
const IN_BUDGETS: Misplaced = &[
    ("world/day", "write `world: { usd_per_day: … }` or `world: { tokens_per_day: … }`"),
    ("team/day", "write `team: { <team>: { usd_per_day: … } }` or `tokens_per_day`"),
    ("agent/day", "write `agent: { <id>: { usd_per_day: … } }` or `tokens_per_day`"),
    ("day", "write `usd_per_day` or `tokens_per_day` into a scope, as in `world: { usd_per_day: 2.50 }`"),
    ("tokens", "say whose: `world: { tokens: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("usd", "say whose: `world: { usd: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("tokens_per_day", "say whose: `world: { tokens_per_day: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("usd_per_day", "say whose: `world: { usd_per_day: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("daily_cost_usd", "say whose and write `usd_per_day`: `world: { usd_per_day: … }`, `agent: { <id>: … }`"),
    ("daily_tokens", "say whose and write `tokens_per_day`: `world: { tokens_per_day: … }`, `agent: { <id>: … }`"),
    ("root", "`ghostctl budget set root:ID` limits one; the file cannot know its id"),
];

/// Budget keys that people write at the top of the file, with the hint for each.
const AT_THE_TOP: Misplaced = &[
    ("budget", "write `budgets: { world: { … } }`; an agent's own `budget` is written in its entry of `agents`"),
    ("daily_cost_usd", "write `budgets: { world: { usd_per_day: … } }`"),
    ("usd_per_day", "write `budgets: { world: { usd_per_day: … } }`"),
    ("tokens_per_day", "write `budgets: { world: { tokens_per_day: … } }`"),
    ("daily_tokens", "write `budgets: { world: { tokens_per_day: … } }`"),
];

/// Sections that settings belong into, by keys that people write at the top of the file.
const WITHIN: [(&str, &str); 27] = [
    ("allowed_hosts", "http"),
    ("allowed_origins", "http"),
    ("backend", "storage"),
    ("brief", "job"),
    ("default_model", "llm"),
    ("default_provider", "llm"),
    ("grpc", "listen"),
    ("id", "world"),
    ("input", "job"),
    ("intensity", "world"),
    ("lead", "job"),
    ("model", "llm"),
    ("models_file", "llm"),
    ("name", "world"),
    ("bundled", "skills"),
    ("open", "metrics"),
    ("owner_may_update", "tasks"),
    ("prices", "llm"),
    ("provider", "llm"),
    ("providers", "llm"),
    ("reactions", "channels"),
    ("result", "job"),
    ("roots", "skills"),
    ("strict_channel_privileges", "access"),
    ("url_env", "storage"),
    ("wake", "chat"),
    ("webhooks", "channels"),
];

/// The hint for a key at the top of the file that belongs into a section.
fn within(key: &str) -> Option<String> {
    let limits = Limits::default().table();
    let limit_keys = limits.iter().map(|(name, ..)| (*name, "limits"));
    let all: Vec<(&str, &str)> = WITHIN.into_iter().chain(limit_keys).collect();
    let near = nearest_within(key, all.iter().map(|(name, _)| *name), if key.len() < 4 { 0 } else { 1 })?;
    let (_, section) = all.iter().find(|(name, _)| *name == near)?;
    let name = match near {
        "model" => "default_model",
        "provider" => "default_provider",
        _ => near,
    };
    Some(format!("did you mean `{section}: {{ {name}: … }}`?"))
}

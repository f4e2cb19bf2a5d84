//! The log: its flags, and its start.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The command-line flags of the log, to be flattened into a program's own.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Format of the log lines.
    #[arg(long, env = "NODEROTATION_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// Least severe level that is logged.
    #[arg(long, env = "NODEROTATION_LOG_LEVEL", default_value = "info", value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: String,
}

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line, for log collectors.
    Json,
    /// Plain text, for people.
    Text,
}

impl LogArgs {
    /// Starts logging to standard error. An error where the process already has a subscriber or the level is unknown.
    pub fn start(&self) -> anyhow::Result<()> {
        let level: tracing::Level = self.log_level.parse()?;
        // kube logs every request that fails as an error of its own; whoever sent it logs it with what comes of it
        let targets = Targets::new().with_default(level).with_target("kube_client", LevelFilter::OFF);
        let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
        let started = match self.log_format {
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
                lines.finish().with(targets).try_init()
            }
            LogFormat::Text => {
                let is_terminal = std::io::stderr().is_terminal();
                lines.with_target(false).with_ansi(is_terminal).finish().with(targets).try_init()
            }
        };
        Ok(started?)
    }
}

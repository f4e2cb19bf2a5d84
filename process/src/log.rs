//! Log lines.

use clap::ValueEnum;

/// Flags of log lines.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Form of the log lines.
    #[arg(long, env = "NODEROTATION_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// Least severe level that is logged.
    #[arg(long, env = "NODEROTATION_LOG_LEVEL", default_value = "info", value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: String,
}

/// Form of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

impl LogArgs {
    /// Begins logging to standard error.
    pub fn start(&self) -> anyhow::Result<()> {
        let level: tracing::Level = self.log_level.parse()?;
        let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
            LogFormat::Text => lines.with_target(false).init(),
        }
        Ok(())
    }
}

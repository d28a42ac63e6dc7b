//! What was found, as text while it is looked for, or as JSON at the end.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Something is missing that Orion does without.
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub status: Status,
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

pub struct Report {
    is_text: bool,
    findings: Vec<Finding>,
}

impl Report {
    pub fn new(is_text: bool) -> Report {
        Report { is_text, findings: Vec::new() }
    }

    /// A line between findings.
    pub fn say(&self, text: &str) {
        if self.is_text {
            orion_pages::putln!("{text}");
        }
    }

    pub fn well(&mut self, check: &'static str, found: impl Into<String>) {
        self.add(Finding { check, status: Status::Ok, found: found.into(), advice: None });
    }

    pub fn warn(&mut self, check: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Finding { check, status: Status::Warning, found: found.into(), advice: Some(advice.into()) });
    }

    pub fn fail(&mut self, check: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Finding { check, status: Status::Failed, found: found.into(), advice: Some(advice.into()) });
    }

    fn add(&mut self, finding: Finding) {
        let mark = match finding.status {
            Status::Ok => "",
            Status::Warning => "[Warning] ",
            Status::Failed => "[Error] ",
        };
        let advice = finding.advice.as_ref().map(|advice| format!("\n    {advice}")).unwrap_or_default();
        self.say(&format!("{mark}{}{advice}", finding.found));
        self.findings.push(finding);
    }

    pub fn status_of(&self, check: &str) -> Option<Status> {
        self.findings.iter().filter(|finding| finding.check == check).map(|finding| finding.status).next_back()
    }

    pub fn has_failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.status == Status::Failed)
    }

    pub fn json(&self) -> String {
        let all = serde_json::json!({ "ok": !self.has_failed(), "findings": self.findings });
        serde_json::to_string_pretty(&all).expect("strings and names")
    }
}

/// A row of a table, as the original prints it.
pub fn row(name: &str, value: &str) -> String {
    format!("{name:<40}[{value}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_failed_fails() {
        let mut report = Report::new(false);
        report.well("os", "Debian");
        report.warn("rdma", "none", "buy some");
        assert!(!report.has_failed());
        report.fail("io_uring", "off", "sysctl kernel.io_uring_disabled=0");
        assert!(report.has_failed());
        assert_eq!(report.status_of("rdma"), Some(Status::Warning));
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["ok"], false);
        assert_eq!(json["findings"][2]["advice"], "sysctl kernel.io_uring_disabled=0");
        assert!(json["findings"][0].get("advice").is_none());
    }

    #[test]
    fn rows_are_forty_wide() {
        assert_eq!(row("OS :", "Yes"), format!("OS :{}[Yes]", " ".repeat(36)));
    }
}

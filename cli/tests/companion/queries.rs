//! The dashboard and the alerts in `examples/metrics`: all metrics and labels that they use exist.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;

use prometheus_parse::Sample;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde::Deserialize;
use serde_json::Value;

use crate::scrape::{Busy, samples};

fn text(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/metrics");
    fs::read_to_string(folder.join(name)).expect("an example")
}

fn dashboard() -> Value {
    serde_json::from_str(&text("grafana-dashboard.json")).expect("JSON")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().expect(name)
}

fn string<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().expect(name)
}

/// The queries of the panels, with what Grafana would put in, and their legends.
fn panel_queries(dashboard: &Value) -> Vec<(String, String)> {
    let targets = list(dashboard, "panels")
        .iter()
        .flat_map(|panel| list(panel, "targets"));
    let query = |target: &Value| {
        let query = string(target, "expr")
            .replace("$__rate_interval", "1m")
            .replace("$__range", "6h")
            .replace("$node", ".*");
        assert!(!query.contains('$'), "an unknown variable: {query}");
        (query, string(target, "legendFormat").to_owned())
    };
    targets.map(query).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name")]
    _name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    _lasting: Option<String>,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    severity: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    summary: String,
    description: String,
}

fn rules() -> Vec<Rule> {
    let file: RuleFile = serde_saphyr::from_str(&text("fairlock-alerts.yml")).expect("rules");
    file.groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

/// What a query asks for: metrics with matchers, and labels to group and join by.
#[derive(Default)]
struct Asked {
    selectors: Vec<VectorSelector>,
    labels: Vec<String>,
}

impl Asked {
    #[track_caller]
    fn by(query: &str) -> Self {
        let tree = parser::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let mut asked = Self::default();
        let Ok(complete) = walk_expr(&mut asked, &tree);
        assert!(complete && !asked.selectors.is_empty(), "{query}");
        asked
    }
}

impl ExprVisitor for Asked {
    type Error = Infallible;

    fn pre_visit(&mut self, part: &Expr) -> Result<bool, Infallible> {
        let modifier = match part {
            Expr::VectorSelector(selector) => {
                self.selectors.push(selector.clone());
                None
            }
            Expr::MatrixSelector(matrix) => {
                self.selectors.push(matrix.vs.clone());
                None
            }
            Expr::Aggregate(aggregate) => aggregate.modifier.as_ref(),
            Expr::Binary(binary) => binary
                .modifier
                .as_ref()
                .and_then(|modifier| modifier.matching.as_ref()),
            _ => None,
        };
        let labels = modifier.map(|modifier| modifier.labels().labels.clone());
        self.labels.extend(labels.unwrap_or_default());
        Ok(true)
    }
}

/// Whether a sample has the label, and it is what is asked for.
fn matches(sample: &Sample, matcher: &Matcher) -> bool {
    sample
        .labels
        .get(&matcher.name)
        .is_some_and(|value| match &matcher.op {
            MatchOp::Equal => value == matcher.value,
            MatchOp::NotEqual => value != matcher.value,
            MatchOp::Re(pattern) => pattern.is_match(value),
            MatchOp::NotRe(pattern) => !pattern.is_match(value),
        })
}

/// Each selector finds samples, and each label to group or join by is one of theirs.
#[track_caller]
fn check(query: &str, samples: &[Sample]) {
    let asked = Asked::by(query);
    let mut found = Vec::new();
    for selector in &asked.selectors {
        let name = selector.name.as_deref().expect("a metric's name");
        assert!(selector.matchers.or_matchers.is_empty(), "{query}");
        let matchers = &selector.matchers.matchers;
        let of_it: Vec<_> = samples
            .iter()
            .filter(|sample| sample.metric == name)
            .filter(|sample| matchers.iter().all(|matcher| matches(sample, matcher)))
            .collect();
        assert!(!of_it.is_empty(), "nothing for {name} in {query}");
        found.extend(of_it);
    }
    for label in &asked.labels {
        let has = |sample: &&Sample| sample.labels.contains_key(label);
        assert!(found.iter().any(has), "no label {label} in {query}");
    }
}

/// The labels that a text for people names, as `{{way}}` or `{{ $labels.way }}`.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("{{").skip(1);
    let words = parts.filter_map(|part| part.split("}}").next());
    words.map(|word| word.trim().trim_start_matches("$labels."))
}

/// Whether the query's result has the label: it is that of a sample, and not summed away.
fn keeps(query: &str, label: &str, samples: &[Sample]) -> bool {
    let asked = Asked::by(query);
    let name = |selector: &VectorSelector| selector.name.clone().unwrap_or_default();
    let has = |sample: &Sample| {
        let metrics = asked.selectors.iter().map(name);
        sample.labels.contains_key(label) && metrics.into_iter().any(|it| it == sample.metric)
    };
    let sums = query.starts_with("sum") || query.starts_with("max");
    samples.iter().any(has) && (!sums || asked.labels.iter().any(|kept| kept == label))
}

#[test]
fn the_dashboard_asks_for_what_is_there() {
    let samples = samples(&Busy::start().server);
    let dashboard = dashboard();
    let queries = panel_queries(&dashboard);
    assert!(queries.len() >= 20, "{}", queries.len());
    for (query, legend) in &queries {
        check(query, &samples);
        for label in named(legend) {
            assert!(keeps(query, label, &samples), "{legend} of {query}");
        }
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let shown: BTreeSet<_> = panel_queries(&dashboard())
        .iter()
        .flat_map(|(query, _)| Asked::by(query).selectors)
        .filter_map(|selector| selector.name)
        .collect();
    let there: BTreeSet<_> = samples(&Busy::start().server)
        .into_iter()
        .map(|sample| sample.metric)
        .collect();
    assert_eq!(shown, there);
}

#[test]
fn the_dashboard_can_be_put_into_any_grafana() {
    let dashboard = dashboard();
    let variables = list(&dashboard["templating"], "list");
    let names: Vec<_> = variables.iter().map(|it| string(it, "name")).collect();
    assert_eq!(names, ["datasource", "node"]);
    assert_eq!(variables[0]["type"], "datasource");
    let query = string(&variables[1]["query"], "query");
    assert_eq!(query, "label_values(fairlock_up, node)");
    let panels = list(&dashboard, "panels");
    let ids: BTreeSet<_> = panels.iter().map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "an id twice");
    let mut cells = BTreeSet::new();
    for panel in panels {
        let title = string(panel, "title");
        for part in [panel].into_iter().chain(list(panel, "targets")) {
            assert_eq!(part["datasource"]["uid"], "${datasource}", "{title}");
        }
        let place = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        for x in place("x")..place("x") + place("w") {
            assert!(x < 24, "{title}");
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "{title} lies over another panel");
            }
        }
    }
}

#[test]
fn the_alerts_ask_for_what_is_there() {
    let samples = samples(&Busy::start().server);
    let rules = rules();
    let names: BTreeSet<_> = rules.iter().map(|rule| &rule.alert).collect();
    assert_eq!(names.len(), rules.len(), "a name twice");
    for rule in &rules {
        check(&rule.expr, &samples);
        assert!(["warning", "critical"].contains(&rule.labels.severity.as_str()));
        let annotations = format!(
            "{} {}",
            rule.annotations.summary, rule.annotations.description
        );
        for label in named(&annotations).filter(|word| !word.starts_with("$value")) {
            assert!(
                keeps(&rule.expr, label, &samples),
                "{}: {label}",
                rule.alert
            );
        }
    }
}

#[test]
fn a_query_for_what_is_not_there_is_noticed() {
    let samples = samples(&Busy::start().server);
    for query in [
        "rate(fairlock_acquisitions[1m])",
        "fairlock_acquisitions_total{way=\"handed-off\"}",
        "fairlock_wait_seconds{quantile=\"0.5\"}",
        "sum by (kind) (fairlock_acquisitions_total)",
        "fairlock_up and on (instance) fairlock_replica",
        "rate(fairlock_up[1m]",
    ] {
        let checked = std::panic::catch_unwind(|| check(query, &samples));
        assert!(checked.is_err(), "{query}");
    }
}

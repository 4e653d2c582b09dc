//! Templates that were taken in, rendered: values, conditions, texts and arguments.
//!
//! Must never: reach anything but the context that it is given, or give text of more than [`TEXT_MAX`] bytes.

use std::io;

use minijinja::Value as Jinja;
use serde_json::Value;

use super::bounds::TEXT_MAX;
use super::budget::Budget;
use super::template::{Expr, Templates, Text, Tree, clipped};

/// What a step of a template costs.
const STEP: u64 = 4;

impl Templates {
    pub(super) fn value(&self, expression: &Expr, context: &Jinja) -> Result<Jinja, String> {
        let compiled = self.environment.compile_expression(&expression.code).map_err(|error| words(&error))?;
        let value = compiled.eval(context.clone()).map_err(|error| words(&error))?;
        if value.is_undefined() {
            return Err(format!("`{}` is undefined here", expression.source));
        }
        Ok(value)
    }

    pub(super) fn truth(&self, expression: &Expr, context: &Jinja) -> Result<bool, String> {
        self.value(expression, context).map(|value| value.is_true())
    }

    pub(super) fn text(&self, text: &Text, context: &Jinja) -> Result<String, String> {
        let name = match text {
            Text::Plain(text) => return Ok(text.clone()),
            Text::Template(name) => name,
        };
        let template = self.environment.get_template(name).map_err(|error| words(&error))?;
        let mut out = Bounded(Vec::new());
        let budget = Budget::in_context(context).map_err(|error| words(&error))?;
        let rendered = template.render_captured_to(context.clone(), &mut out).map_err(|error| words(&error))?;
        // Steps of several templates add up, too.
        let steps = rendered.state().fuel_levels().map_or(0, |(spent, _)| spent);
        budget.spend(steps.saturating_mul(STEP)).map_err(|error| words(&error))?;
        String::from_utf8(out.0).map_err(|error| error.to_string())
    }

    pub(super) fn tree(&self, tree: &Tree, context: &Jinja) -> Result<Value, String> {
        match tree {
            Tree::Plain(value) => Ok(value.clone()),
            Tree::Text(text) => self.text(text, context).map(Value::String),
            Tree::Value(expression) => {
                let value = self.value(expression, context)?;
                let paid = Budget::in_context(context).and_then(|budget| budget.whole(&value, true));
                paid.map_err(|error| words(&error))?;
                serde_json::to_value(&value).map_err(|error| error.to_string())
            }
            Tree::List(items) => {
                items.iter().map(|item| self.tree(item, context)).collect::<Result<_, _>>().map(Value::Array)
            }
            Tree::Map(items) => items
                .iter()
                .map(|(key, item)| Ok((key.clone(), self.tree(item, context)?)))
                .collect::<Result<_, String>>()
                .map(Value::Object),
        }
    }
}

/// The error with its causes, on one line.
fn words(error: &minijinja::Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line().filter(|line| *line > 1) {
        text = format!("{text} (line {line} of the template)");
    }
    clipped(&text)
}

/// Text of at most [`TEXT_MAX`] bytes.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_MAX {
            return Err(io::Error::other(format!("the text is longer than {TEXT_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Templates that were taken in, rendered: values, conditions, texts and arguments.
//!
//! Must never: reach anything but the context that it is given, or give text of more than [`TEXT_MAX`] bytes.

use std::io;

use minijinja::Value as Jinja;
use serde_json::Value;

use super::bounds::TEXT_MAX;
use super::budget::{Budget, Each, words};
use super::template::{Expr, Templates, Text, Tree};

/// What a step of a template costs.
const STEP: u64 = 16;
/// What a byte of an expression costs, which is compiled and then run without a loop.
const CODE: u64 = 32;

impl Templates {
    pub(super) fn value(&self, expression: &Expr, context: &Jinja) -> Result<Jinja, String> {
        let budget = Budget::in_context(context).map_err(|error| words(&error))?;
        budget.spend_on(expression.code.len(), CODE).map_err(|error| words(&error))?;
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
        let mut out = Bounded::default();
        let budget = Budget::in_context(context).map_err(|error| words(&error))?;
        let rendered = template.render_captured_to(context.clone(), &mut out).map_err(|error| {
            // The library says no more than that writing failed.
            if out.full { format!("the text is longer than {TEXT_MAX} bytes") } else { words(&error) }
        })?;
        // Steps of several templates add up, too.
        let steps = rendered.state().fuel_levels().map_or(0, |(spent, _)| spent);
        budget.spend(steps.saturating_mul(STEP)).map_err(|error| words(&error))?;
        String::from_utf8(out.text).map_err(|error| error.to_string())
    }

    pub(super) fn tree(&self, tree: &Tree, context: &Jinja) -> Result<Value, String> {
        match tree {
            Tree::Plain(value) => Ok(value.clone()),
            Tree::Text(text) => self.text(text, context).map(Value::String),
            Tree::Value(expression) => {
                let value = self.value(expression, context)?;
                let paid = Budget::in_context(context).and_then(|budget| budget.all_of(&value, Each::BUILT));
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

/// Text of at most [`TEXT_MAX`] bytes.
#[derive(Default)]
struct Bounded {
    text: Vec<u8>,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > TEXT_MAX {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Runs templates: values, conditions, texts and arguments.
//!
//! Rendering must never return more than [`TEXT_MAX`] bytes of text.

use std::io;

use minijinja::{Error, ErrorKind, Value as Jinja};
use serde_json::Value;

use super::bounds::TEXT_MAX;
use super::template::{Expr, Templates, Text, Tree, clipped};

impl Templates {
    pub(super) fn value(&self, expression: &Expr, context: &Jinja) -> Result<Jinja, String> {
        let compiled = self.environment.compile_expression(&expression.0).map_err(|error| words(&error))?;
        let value = compiled.eval(context.clone()).map_err(|error| words(&error))?;
        if value.is_undefined() {
            return Err(format!("`{}` is undefined here", expression.0));
        }
        Ok(value)
    }

    pub(super) fn truth(&self, expression: &Expr, context: &Jinja) -> Result<bool, String> {
        self.value(expression, context).map(|value| value.is_true())
    }

    pub(super) fn render(&self, text: &Text, context: &Jinja) -> Result<String, String> {
        let source = match text {
            Text::Plain(text) => return Ok(text.clone()),
            Text::Template(source) => source,
        };
        let template = self.environment.template_from_str(source).map_err(|error| words(&error))?;
        let mut out = Bounded::default();
        template.render_captured_to(context.clone(), &mut out).map_err(|error| {
            // The error of the library says only that writing failed.
            if out.full { format!("the text is longer than {TEXT_MAX} bytes") } else { words(&error) }
        })?;
        String::from_utf8(out.text).map_err(|error| error.to_string())
    }

    pub(super) fn tree(&self, tree: &Tree, context: &Jinja) -> Result<Value, String> {
        match tree {
            Tree::Plain(value) => Ok(value.clone()),
            Tree::Text(text) => self.render(text, context).map(Value::String),
            Tree::Value(expression) => {
                let value = self.value(expression, context)?;
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

/// An error of the template language with its cause, on one line.
fn words(error: &Error) -> String {
    let mut text = match error.kind() {
        ErrorKind::OutOfFuel => "a template takes too many steps".to_owned(),
        kind => kind.to_string(),
    };
    // If a template uses a `let` whose definition failed, the failure is the source of the
    // template's error.
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Error>());
    if let Some(detail) = error.detail().or_else(|| cause.and_then(Error::detail)) {
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line().filter(|line| *line > 1) {
        text = format!("{text} (line {line} of the template)");
    }
    clipped(&text)
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

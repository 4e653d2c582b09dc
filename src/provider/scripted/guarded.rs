//! Code of templates with guards in it: before it is compiled, every operator and every literal that builds a value is put into
//! the hands of the function that pays for it, and what cannot be paid for is refused.
//!
//! Must never: change what code means, or on which line it stands.

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::{Span, Token, parse, parse_expr, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Most signs in one `{{ }}` or `{% %}` that may put code into code.
const SIGNS_MAX: usize = 400;
/// How deep blocks may lie in one another; each `elif` counts.
const BLOCKS_MAX: usize = 40;

/// Why code is not taken.
#[derive(Debug)]
pub(super) struct Rejected {
    /// From 1.
    pub(super) line: usize,
    pub(super) message: String,
    /// What to do, if it is not what it always is.
    pub(super) hint: Option<&'static str>,
}

impl Rejected {
    fn new(line: usize, message: String, hint: &'static str) -> Self {
        Self { line, message, hint: Some(hint) }
    }
}

impl From<minijinja::Error> for Rejected {
    fn from(error: minijinja::Error) -> Self {
        let mut message = error.kind().to_string();
        if let Some(detail) = error.detail() {
            message = format!("{message}: {detail}");
        }
        Self { line: error.line().unwrap_or(1), message, hint: None }
    }
}

/// An expression with guards in it.
pub(super) fn expression(source: &str) -> Result<String, Rejected> {
    check_size(source, true, SyntaxConfig::default())?;
    let mut edits = Edits::of(source);
    edits.expression(&parse_expr(source)?)?;
    edits.made()
}

/// A text with guards in its templates.
pub(super) fn text(source: &str, syntax: &SyntaxConfig) -> Result<String, Rejected> {
    check_size(source, false, syntax.clone())?;
    let mut edits = Edits::of(source);
    edits.statement(&parse(source, "template", syntax.clone())?)?;
    edits.made()
}

/// Refuses code whose parts lie so deep in one another that looking at it could take all of a thread's stack.
fn check_size(source: &str, in_expression: bool, syntax: SyntaxConfig) -> Result<(), Rejected> {
    // How deep the blocks that are open lie: those that they begin with, and one for each `elif`.
    let (mut signs, mut open, mut begins) = (0, Vec::new(), false);
    for token in tokenize(source, in_expression, syntax) {
        let (token, span) = token?;
        match token {
            Token::VariableStart | Token::BlockStart | Token::BlockEnd | Token::VariableEnd => signs = 0,
            Token::Ident("if" | "for" | "with" | "autoescape" | "filter") if begins => open.push(1_usize),
            Token::Ident("elif") if begins => open.last_mut().into_iter().for_each(|deep| *deep += 1),
            Token::Ident("endif" | "endfor" | "endwith" | "endautoescape" | "endfilter") if begins => drop(open.pop()),
            Token::Comma | Token::Colon | Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Float(_) => {}
            Token::TemplateData(_) => {}
            _ => signs += 1,
        }
        begins = matches!(token, Token::BlockStart);
        if signs > SIGNS_MAX || open.iter().sum::<usize>() > BLOCKS_MAX {
            let message = "the template is too intricate here".to_owned();
            let hint = "take it apart: name parts of it with `let`, or put a list under `vars`";
            return Err(Rejected::new(usize::from(span.start_line), message, hint));
        }
    }
    Ok(())
}

/// What is put into a source, and what it takes the place of. What is put in at one place stands in the order in which it came.
struct Edits<'s> {
    source: &'s str,
    /// Place, bytes that go, and text.
    edits: Vec<(usize, usize, String)>,
    /// How many bytes of text the code so far writes in each round of a loop.
    cost: u64,
}

impl<'s> Edits<'s> {
    fn of(source: &'s str) -> Self {
        Self { source, edits: Vec::new(), cost: 0 }
    }

    fn made(mut self) -> Result<String, Rejected> {
        self.edits.sort_by_key(|(at, _, _)| *at);
        let (mut made, mut done) = (String::with_capacity(self.source.len() + 16 * self.edits.len()), 0);
        for (at, goes, text) in &self.edits {
            let between = self.source.get(done..*at).ok_or_else(|| Self::lost(1))?;
            made.push_str(between);
            made.push_str(text);
            done = at + goes;
        }
        made.push_str(self.source.get(done..).ok_or_else(|| Self::lost(1))?);
        Ok(made)
    }

    /// Something does not stand where the language says that it stands.
    fn lost(line: usize) -> Rejected {
        Rejected::new(line, "this cannot be bounded".to_owned(), "write it in other words")
    }

    fn put(&mut self, at: usize, text: impl Into<String>) {
        self.edits.push((at, 0, text.into()));
    }

    /// The first place from `at` on where something else than spaces and what `skipped` names stands.
    fn next(&self, at: usize, skipped: char) -> usize {
        let rest = self.source.get(at..).unwrap_or_default();
        at + rest.find(|c: char| !c.is_whitespace() && c != skipped).unwrap_or(rest.len())
    }

    fn has(&self, at: usize, word: &str) -> bool {
        self.source.get(at..).is_some_and(|rest| rest.starts_with(word))
    }

    fn all(&mut self, statements: &[Stmt<'_>]) -> Result<(), Rejected> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Result<(), Rejected> {
        let refused = |what: &str, span: Span| {
            let hint = "write it with `if`, `for` and `set name = …`; name what is used again with `let`";
            Err(Rejected::new(usize::from(span.start_line), format!("rules have no {what}"), hint))
        };
        match statement {
            Stmt::Template(template) => self.all(&template.children),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::EmitRaw(emit) => {
                self.cost += emit.raw.len() as u64;
                Ok(())
            }
            Stmt::ForLoop(for_loop) => {
                if for_loop.recursive {
                    return refused("`recursive` loops", for_loop.span());
                }
                let line = usize::from(for_loop.span().start_line);
                let at = self.next(end(for_loop.target.span()), ')');
                if !self.has(at, "in") {
                    return Err(Self::lost(line));
                }
                let before = std::mem::take(&mut self.cost);
                let opening = self.edits.len();
                self.put(at + 2, " EACH((");
                self.expression(&for_loop.iter)?;
                let closing = self.edits.len();
                let after = self.next(end(for_loop.iter.span()), ')');
                self.put(after, "");
                for_loop.filter_expr.iter().try_for_each(|filter| self.expression(filter))?;
                self.all(&for_loop.body)?;
                self.all(&for_loop.else_body)?;
                let cost = std::mem::replace(&mut self.cost, before);
                self.cost += cost;
                if let Some((_, _, text)) = self.edits.get_mut(closing) {
                    *text = format!("), {cost}) ");
                }
                debug_assert!(opening < closing, "the guard closes behind where it opens");
                Ok(())
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr)?;
                self.all(&condition.true_body)?;
                self.all(&condition.false_body)
            }
            Stmt::Set(set) => {
                let line = usize::from(set.span().start_line);
                let (dotted, several) = match &set.target {
                    Expr::GetAttr(_) => (true, false),
                    Expr::List(list) => (list.items.iter().any(|item| !matches!(item, Expr::Var(_))), true),
                    _ => (false, false),
                };
                if dotted && several {
                    return refused("`set` of several attributes at once", set.span());
                }
                let at = self.next(end(set.target.span()), ')');
                if !self.has(at, "=") {
                    return Err(Self::lost(line));
                }
                self.put(at + 1, if dotted { " HELD((" } else { " ALL((" });
                self.expression(&set.expr)?;
                let after = self.next(end(set.expr.span()), ')');
                let after = if self.has(after, ",") { self.next(after + 1, ')') } else { after };
                self.put(after, ")) ");
                Ok(())
            }
            Stmt::Do(call) => call.call.args.iter().try_for_each(|argument| self.argument(argument)),
            Stmt::WithBlock(block) => refused("`with` blocks", block.span()),
            // What stands in it is paid for as it is written, and in a loop by the round.
            Stmt::SetBlock(block) => {
                block.filter.iter().try_for_each(|filter| self.expression(filter))?;
                self.all(&block.body)
            }
            Stmt::AutoEscape(block) => refused("`autoescape` blocks", block.span()),
            Stmt::FilterBlock(block) => refused("`filter` blocks", block.span()),
        }
    }

    fn argument(&mut self, argument: &CallArg<'_>) -> Result<(), Rejected> {
        let (CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value)) =
            argument;
        self.expression(value)
    }

    fn each(&mut self, expressions: &[Expr<'_>]) -> Result<(), Rejected> {
        expressions.iter().try_for_each(|expression| self.expression(expression))
    }

    /// What `inner` does, between a guard and its end.
    fn within(
        &mut self,
        guard: &str,
        span: Span,
        inner: impl FnOnce(&mut Self) -> Result<(), Rejected>,
    ) -> Result<(), Rejected> {
        self.put(start(span), format!("{guard}(("));
        inner(self)?;
        self.put(end(span), "))");
        Ok(())
    }

    fn expression(&mut self, expression: &Expr<'_>) -> Result<(), Rejected> {
        match expression {
            Expr::Var(_) | Expr::Const(_) => Ok(()),
            Expr::UnaryOp(operation) => self.expression(&operation.expr),
            Expr::BinOp(operation) => {
                let (left, right) = (&operation.left, &operation.right);
                let (guard, sign) = match operation.op {
                    BinOpKind::Concat => ("CAT", "~"),
                    BinOpKind::Add => ("ADD", "+"),
                    BinOpKind::Mul => ("MUL", "*"),
                    BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte
                    | BinOpKind::In => return self.compared([left, right]),
                    BinOpKind::ScAnd
                    | BinOpKind::ScOr
                    | BinOpKind::Sub
                    | BinOpKind::Div
                    | BinOpKind::FloorDiv
                    | BinOpKind::Rem
                    | BinOpKind::Pow => {
                        self.expression(left)?;
                        return self.expression(right);
                    }
                };
                let span = operation.span();
                self.within(guard, span, |edits| {
                    edits.expression(left)?;
                    let at = edits.next(end(left.span()), ')');
                    if !edits.has(at, sign) {
                        return Err(Self::lost(usize::from(span.start_line)));
                    }
                    edits.edits.push((at, sign.len(), "),(".to_owned()));
                    edits.expression(right)
                })
            }
            Expr::Compare(comparison) => {
                let first = std::iter::once(&comparison.expr);
                self.compared(first.chain(comparison.ops.iter().map(|operation| &operation.expr)))
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.true_expr)?;
                self.expression(&choice.test_expr)?;
                choice.false_expr.iter().try_for_each(|other| self.expression(other))
            }
            Expr::Filter(filter) => {
                filter.expr.iter().try_for_each(|value| self.expression(value))?;
                filter.args.iter().try_for_each(|argument| self.argument(argument))
            }
            Expr::Test(test) => {
                self.expression(&test.expr)?;
                test.args.iter().try_for_each(|argument| self.argument(argument))
            }
            Expr::GetAttr(attribute) => self.expression(&attribute.expr),
            Expr::GetItem(item) => {
                self.put(self.first(expression), "AT((");
                self.expression(&item.expr)?;
                self.put(self.behind(&item.expr), "))");
                self.compared([&item.subscript_expr])
            }
            Expr::Slice(slice) => {
                self.put(self.first(expression), "CUT((TOP((");
                self.expression(&slice.expr)?;
                self.put(self.behind(&slice.expr), "))");
                [&slice.start, &slice.stop, &slice.step]
                    .into_iter()
                    .flatten()
                    .try_for_each(|at| self.expression(at))?;
                self.put(end(slice.span()), "))");
                Ok(())
            }
            Expr::Call(call) => {
                self.expression(&call.expr)?;
                // `loop.changed` compares what it is given.
                let compares = !matches!(call.expr, Expr::Var(_));
                call.args.iter().try_for_each(|argument| match argument {
                    CallArg::Pos(value) | CallArg::Kwarg(_, value) if compares => self.compared([value]),
                    CallArg::PosSplat(_) | CallArg::KwargSplat(_) if compares => {
                        let line = usize::from(call.span().start_line);
                        Err(Rejected::new(line, "this call cannot take `*`".to_owned(), "write out what it is given"))
                    }
                    other => self.argument(other),
                })
            }
            Expr::List(list) => self.literal("[", list.span(), |edits| edits.each(&list.items)),
            Expr::Tuple(tuple) => self.literal("(", tuple.span(), |edits| edits.each(&tuple.items)),
            Expr::Map(map) => self.literal("{", map.span(), |edits| {
                map.keys.iter().zip(&map.values).try_for_each(|(key, value)| {
                    edits.expression(key)?;
                    edits.expression(value)
                })
            }),
        }
    }

    /// What may be looked at as a whole, each.
    fn compared<'e>(&mut self, values: impl IntoIterator<Item = &'e Expr<'e>>) -> Result<(), Rejected> {
        values.into_iter().try_for_each(|value| {
            if matches!(value, Expr::Const(_)) {
                return Ok(());
            }
            self.put(self.first(value), "SEEN((");
            self.expression(value)?;
            self.put(end(value.span()), "))");
            Ok(())
        })
    }

    /// The place behind an expression and the brackets around it. It must not be the last in other brackets.
    fn behind(&self, expression: &Expr<'_>) -> usize {
        let last = end(expression.span());
        let rest = self.source.get(last..self.next(last, ')')).unwrap_or_default();
        last + rest.rfind(')').map_or(0, |at| at + 1)
    }

    /// Where an expression begins, brackets around it left out. What the language says of those that follow another, such as
    /// `a.b[1:]`, is where their last part begins.
    fn first(&self, expression: &Expr<'_>) -> usize {
        match expression {
            Expr::Var(_) | Expr::Const(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => start(expression.span()),
            Expr::UnaryOp(operation) => start(operation.span()).min(self.first(&operation.expr)),
            Expr::BinOp(operation) => self.outermost(&operation.left),
            Expr::Compare(comparison) => self.outermost(&comparison.expr),
            Expr::IfExpr(choice) => self.outermost(&choice.true_expr),
            Expr::Filter(filter) => filter.expr.as_ref().map_or(start(filter.span()), |value| self.outermost(value)),
            Expr::Test(test) => self.outermost(&test.expr),
            Expr::GetAttr(attribute) => self.outermost(&attribute.expr),
            Expr::GetItem(item) => self.outermost(&item.expr),
            Expr::Slice(slice) => self.outermost(&slice.expr),
            Expr::Call(call) => self.outermost(&call.expr),
        }
    }

    /// The same with the brackets around it. It must not be the last in other brackets.
    fn outermost(&self, expression: &Expr<'_>) -> usize {
        let last = end(expression.span());
        let behind = self.source.get(last..self.next(last, ')')).unwrap_or_default();
        let before = self.source.get(..self.first(expression)).unwrap_or_default();
        let mut at = before.len();
        for _ in behind.matches(')') {
            at = before.get(..at).and_then(|before| before.rfind('(')).unwrap_or(at);
        }
        at
    }

    /// A literal with brackets. One without, behind `set`, is guarded by that.
    fn literal(
        &mut self,
        bracket: &str,
        span: Span,
        inner: impl FnOnce(&mut Self) -> Result<(), Rejected>,
    ) -> Result<(), Rejected> {
        if self.has(start(span), bracket) { self.within("ALL", span, inner) } else { inner(self) }
    }
}

fn start(span: Span) -> usize {
    span.start_offset as usize
}

fn end(span: Span) -> usize {
    span.end_offset as usize
}

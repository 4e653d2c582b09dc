//! Judges `[[ … ]]`, whose operators may evaluate their operands as arithmetic.
//!
//! It must never leave out an operand: each is a word that may hold a substitution.

use brush_parser::ast::{BinaryPredicate, ExtendedTestExpr, UnaryPredicate};

use crate::refusal::Cause;
use crate::walk::Walk;
use crate::word::Scan;

impl Walk<'_> {
    pub fn test(&mut self, test: &ExtendedTestExpr) {
        match test {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner),
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                let evaluated =
                    [UnaryPredicate::ShellVariableIsSetAndAssigned, UnaryPredicate::ShellVariableIsSetAndNameRef];
                if evaluated.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(predicate)) {
                    self.fault(Cause::Arithmetic, &word.value);
                }
                self.word(&word.value);
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => match predicate {
                BinaryPredicate::ArithmeticEqualTo
                | BinaryPredicate::ArithmeticNotEqualTo
                | BinaryPredicate::ArithmeticLessThan
                | BinaryPredicate::ArithmeticLessThanOrEqualTo
                | BinaryPredicate::ArithmeticGreaterThan
                | BinaryPredicate::ArithmeticGreaterThanOrEqualTo => {
                    for side in [left, right] {
                        self.sum(side.value.trim_matches('"'));
                    }
                }
                BinaryPredicate::StringMatchesRegex | BinaryPredicate::StringContainsSubstring => {
                    self.word(&left.value);
                    self.pattern(&right.value);
                }
                _ => {
                    self.word(&left.value);
                    self.word(&right.value);
                }
            },
        }
    }

    /// The right side of `=~`, which may hold operators and blanks.
    fn pattern(&mut self, source: &str) {
        let mut scan = Scan::new(source);
        while let Some(c) = scan.peek() {
            match c {
                '<' | '>' | '&' | ';' => return self.fault(Cause::Ambiguous, source),
                ' ' | '\t' | '\n' | '|' | '(' | ')' => scan.at += 1,
                _ => match scan.word() {
                    Ok(word) => self.visit(&word),
                    Err(fault) => return self.fault_in(source, fault),
                },
            }
        }
    }
}

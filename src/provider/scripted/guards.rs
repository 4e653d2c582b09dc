//! What stands in for the operators, functions and filters of the template language that build something: the same, paid for
//! from the answer's [`Budget`].
//!
//! Must never: build first and pay later where the operands do not bound what is built.

use std::sync::LazyLock;

use minijinja::functions::{self, Function};
use minijinja::value::{FunctionArgs, FunctionResult, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, UndefinedBehavior, Value, context, filters, tests};

use super::budget::{BYTE, Budget, Each, bad, made, refuse_namespace};

/// What a round of a loop costs.
const ROUND: u64 = 64;
/// What a byte of text costs of which the characters are counted.
const COUNTED: u64 = 4;
/// What a byte of text costs besides that is read for its sentences, numbers or tables.
const READ: usize = 16;
/// What a value takes that is one of many, in bytes.
const VALUE_BYTES: usize = 32;
/// What a small object takes when it is read from text, in bytes.
const OBJECT_BYTES: usize = 1 << 10;
/// Most parts that `batch` and `slice` make.
const PARTS_MAX: usize = 10_000;
/// Most digits of a width in `format`.
const WIDTH_DIGITS: usize = 3;

/// The operators as the language has them.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
});

/// What a filter does with what it is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Makes {
    /// Lists of values that are there already.
    Lists,
    /// It puts values in order, or compares them with one another.
    Order,
    /// Texts, or anything for which it looks at all of what it is given.
    Anew,
}

/// Adds a filter that pays for what it is given and for what it gives.
pub(super) fn add<F, Rv, Args>(environment: &mut Environment<'static>, name: &'static str, makes: Makes, filter: F)
where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let filter = Value::from_function(filter);
    let guarded = move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let (budget, given) = (Budget::of(state)?, given.into_values());
        given.iter().try_for_each(|value| match makes {
            Makes::Lists => budget.top_of(value),
            Makes::Order => budget.all_of(value, Each::COMPARED),
            Makes::Anew => budget.all_of(value, Each::WORKED),
        })?;
        product(name, makes, &given, &budget)?;
        let gives = filter.call(state, &given)?;
        match makes {
            Makes::Lists | Makes::Order => budget.top_of(&gives)?,
            Makes::Anew => budget.all_of(&gives, Each::BUILT)?,
        }
        made(gives)
    };
    environment.add_filter(name, guarded);
}

/// Adds a test that pays for all that it is given: it may compare that.
fn add_test<F, Rv, Args>(environment: &mut Environment<'static>, names: &'static [&'static str], test: F)
where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let test = Value::from_function(test);
    for name in names {
        let test = test.clone();
        let guarded = move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let (budget, given) = (Budget::of(state)?, given.into_values());
            given.iter().try_for_each(|value| budget.all_of(value, Each::COMPARED))?;
            test.call(state, &given)
        };
        environment.add_test(*name, guarded);
    }
}

/// Pays for what grows with the product of what a filter is given.
fn product(name: &str, makes: Makes, given: &[Value], budget: &Budget) -> Result<(), Error> {
    let text = |at: usize| given.get(at).and_then(Value::as_str);
    let number = |at: usize| given.get(at).and_then(Value::as_usize);
    let times = |count: usize, length: usize| budget.spend_on(count.saturating_mul(length), BYTE);
    let count = || given.first().map_or(Ok(0), |first| budget.count(first));
    if makes == Makes::Order {
        // Each value is compared with so many others, where the first look is paid for.
        let (before, values) = (budget.paid(), count()?);
        given.first().map_or(Ok(()), |first| budget.all_of(first, Each::COMPARED))?;
        let once = budget.paid() - before;
        budget.spend(once.saturating_mul(u64::from(values.max(1).ilog2())))?;
    }
    match name {
        // Whatever else they are given is looked at for each value.
        "map" | "select" | "reject" | "selectattr" | "rejectattr" | "of" => {
            let others: usize = given.iter().skip(1).filter_map(Value::as_str).map(str::len).sum();
            times(count()?, others.saturating_add(VALUE_BYTES))
        }
        "figures" | "sentences" | "first_sentence" | "numbers" | "shape" => times(text(0).map_or(0, str::len), READ),
        "missing_in" => times(text(1).map_or(0, str::len), READ),
        "from_json" => times(text(0).map_or(0, |text| text.matches('{').count()), OBJECT_BYTES),
        "replace" => match (text(0), text(1), text(2)) {
            (Some(whole), Some(from), Some(to)) => times(whole.matches(from).count(), to.len()),
            // What is no text is made one first, of which nothing is known here.
            _ => Err(bad("`replace` takes texts".to_owned())),
        },
        "join" => match (given.first(), text(1)) {
            (Some(list), Some(between)) if !list.is_undefined() && !list.is_none() => times(count()?, between.len()),
            _ => Ok(()),
        },
        "indent" => times(text(0).map_or(1, |text| text.matches('\n').count() + 1), number(1).unwrap_or(0)),
        "batch" | "slice" if number(1).is_some_and(|parts| parts > PARTS_MAX) => {
            Err(bad(format!("`{name}` makes {PARTS_MAX} parts at most")))
        }
        // A text among them is a list of its characters.
        "batch" | "slice" | "list" | "chain" | "zip" => {
            times(given.iter().filter_map(Value::as_str).map(str::len).sum(), VALUE_BYTES)
        }
        "format" => {
            let digits = text(0).unwrap_or_default().split(|c: char| !c.is_ascii_digit()).map(str::len).max();
            let wide = digits.is_some_and(|digits| digits > WIDTH_DIGITS);
            if wide || text(0).is_some_and(|text| text.contains('*')) {
                return Err(bad(format!("`format` takes widths of {WIDTH_DIGITS} digits at most, written out")));
            }
            Ok(())
        }
        "sum" => {
            let Some(Ok(items)) = given.first().map(Value::try_iter) else { return Ok(()) };
            if items.into_iter().any(|item| item.kind() != ValueKind::Number) {
                return Err(bad("`sum` adds numbers".to_owned()));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Puts the guards in the place of what they stand for. All that guard a part of the code are named in `guarded.rs`.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_function("CAT", |state: &State<'_, '_>, left: Value, right: Value| -> Result<String, Error> {
        Budget::of(state)?.text(&[&left, &right])
    });
    environment.add_function("ADD", |state: &State<'_, '_>, left: Value, right: Value| -> Result<Value, Error> {
        if left.kind() != ValueKind::Number || right.kind() != ValueKind::Number {
            let budget = Budget::of(state)?;
            budget.top_of(&left)?;
            budget.top_of(&right)?;
        }
        made(PLAIN.compile_expression("left + right")?.eval(context! { left, right })?)
    });
    environment.add_function("MUL", |state: &State<'_, '_>, left: Value, right: Value| -> Result<Value, Error> {
        let budget = Budget::of(state)?;
        for (many, times) in [(&left, &right), (&right, &left)] {
            let count = match many.kind() {
                ValueKind::String => many.as_str().map_or(0, str::len),
                ValueKind::Seq | ValueKind::Iterable => budget.count(many)?.saturating_mul(VALUE_BYTES),
                _ => continue,
            };
            budget.spend_on(count.saturating_mul(times.as_usize().unwrap_or(0)), BYTE)?;
        }
        made(PLAIN.compile_expression("left * right")?.eval(context! { left, right })?)
    });
    environment.add_function("CUT", |state: &State<'_, '_>, part: Value| -> Result<Value, Error> {
        Budget::of(state)?.top_of(&part)?;
        made(part)
    });
    environment.add_function("TOP", |state: &State<'_, '_>, of: Value| -> Result<Value, Error> {
        let budget = Budget::of(state)?;
        budget.spend_on(of.as_str().map_or(0, str::len), COUNTED)?;
        budget.top_of(&of)?;
        Ok(of)
    });
    environment.add_function("AT", |state: &State<'_, '_>, of: Value| -> Result<Value, Error> {
        // What one knows the place of in a list or an object is found at once.
        match of.as_str() {
            Some(text) => Budget::of(state)?.spend_on(text.len(), COUNTED)?,
            None if of.kind() == ValueKind::Iterable => Budget::of(state)?.top_of(&of)?,
            None => {}
        }
        Ok(of)
    });
    environment.add_function("SEEN", |state: &State<'_, '_>, seen: Value| -> Result<Value, Error> {
        // Numbers and the like are looked at in no time.
        if matches!(
            seen.kind(),
            ValueKind::String | ValueKind::Bytes | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map
        ) {
            Budget::of(state)?.all_of(&seen, Each::COMPARED)?;
        }
        Ok(seen)
    });
    environment.add_function("ALL", |state: &State<'_, '_>, built: Value| -> Result<Value, Error> {
        Budget::of(state)?.all_of(&built, Each::KEPT)?;
        Ok(built)
    });
    environment.add_function("HELD", |state: &State<'_, '_>, kept: Value| -> Result<Value, Error> {
        refuse_namespace(&kept)?;
        Budget::of(state)?.all_of(&kept, Each::KEPT)?;
        Ok(kept)
    });
    environment.add_function("EACH", |state: &State<'_, '_>, all: Value, cost: u64| -> Result<Value, Error> {
        let budget = Budget::of(state)?;
        if matches!(all.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            budget.spend_on(budget.count(&all)?, cost.saturating_add(ROUND))?;
        }
        Ok(all)
    });
    for (name, function) in
        [("dict", Value::from_function(functions::dict)), ("namespace", Value::from_function(functions::namespace))]
    {
        let guarded = move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let (budget, given) = (Budget::of(state)?, given.into_values());
            given
                .iter()
                .try_for_each(|value| refuse_namespace(value).and_then(|()| budget.all_of(value, Each::KEPT)))?;
            function.call(state, &given)
        };
        environment.add_function(name, guarded);
    }
    // What is written into a `set` block is kept as a text: it is paid for like one.
    environment.set_formatter(|out, state, value| {
        let text = Budget::of(state)?.text(&[value])?;
        out.write_str(&text).map_err(Error::from)
    });
    // They show whatever there is, however large.
    environment.remove_global("debug");
    environment.remove_filter("pprint");
    install_filters(environment);
}

fn install_filters(environment: &mut Environment<'static>) {
    macro_rules! guarded {
        ($makes:ident: $($name:ident)*) => {
            $(add(environment, stringify!($name), Makes::$makes, filters::$name);)*
        };
    }
    guarded!(Lists: length reverse default first last list bool attr select reject selectattr rejectattr map chain items
        batch slice zip);
    guarded!(Order: dictsort min max sort sum groupby unique);
    guarded!(Anew: safe escape lower upper title capitalize replace trim join split lines round abs int float string indent
        format);
    add(environment, "count", Makes::Lists, filters::length);
    add(environment, "d", Makes::Lists, filters::default);
    add(environment, "e", Makes::Anew, filters::escape);
    add_test(environment, &["in"], tests::is_in);
    add_test(environment, &["eq", "equalto", "=="], tests::is_eq);
    add_test(environment, &["ne", "!="], tests::is_ne);
    add_test(environment, &["lt", "lessthan", "<"], tests::is_lt);
    add_test(environment, &["le", "<="], tests::is_le);
    add_test(environment, &["gt", "greaterthan", ">"], tests::is_gt);
    add_test(environment, &["ge", ">="], tests::is_ge);
    add_test(environment, &["sameas"], tests::is_sameas);
    add_test(environment, &["startingwith"], tests::is_startingwith);
    add_test(environment, &["endingwith"], tests::is_endingwith);
    add_test(environment, &["lower"], tests::is_lower);
    add_test(environment, &["upper"], tests::is_upper);
}

#[cfg(test)]
mod guard_tests {
    use super::*;

    /// What the language has by now, as it shows it.
    fn names(of: &str, until: &str) -> Vec<String> {
        let shown = format!("{:?}", Environment::new());
        let names = shown.split(of).nth(1).and_then(|rest| rest.split(until).next()).unwrap();
        names.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_test_of_the_language_is_guarded_or_looks_at_no_more_than_what_a_value_is() {
        let mut environment = Environment::new();
        install(&mut environment);
        let cheap = "boolean defined divisibleby escaped even false filter float int integer iterable mapping none number \
                     odd safe sequence string test true undefined";
        for name in names("tests: ", ", filters: ") {
            if !cheap.split_whitespace().any(|known| known == name) {
                let probe = environment.compile_expression("[1] | select(name, 1)").unwrap();
                let told = probe.eval(context! { name => name.as_str() }).unwrap_err().to_string();
                assert!(told.contains("BUDGET"), "{name}: {told}");
            }
        }
    }

    /// A filter that is added by a later version of the language would be bounded by nothing.
    #[test]
    fn every_filter_of_the_language_is_guarded_or_gone() {
        let mut environment = Environment::new();
        install(&mut environment);
        let names = names("filters: ", ", templates: ");
        assert!(names.len() > 40, "{names:?}");
        for name in names {
            let probe = format!("1|{name}");
            let told = environment.compile_expression(&probe).and_then(|probe| probe.eval(())).unwrap_err().to_string();
            assert!(told.contains("BUDGET") || told.contains("unknown filter"), "{name}: {told}");
        }
    }
}

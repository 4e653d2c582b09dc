//! The completion scripts of the shells. Each calls this program for the candidates at the cursor.

const BASH: &str = r#"# Completions of ghostctl for bash.
_ghostctl() {
    local line value inline=
    COMPREPLY=()
    # bash splits --option=value and expects the value alone.
    if [[ ${COMP_WORDS[COMP_CWORD]} == "=" || ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
        inline=1
    fi
    while IFS= read -r line; do
        value=${line%%$'\t'*}
        if [[ $inline ]]; then
            value=${value#--*=}
        fi
        # bash inserts the word unchanged, so special characters must be quoted here.
        if [[ $value == *[![:alnum:]._/@:=,+-]* ]]; then
            printf -v value %q "$value"
        fi
        COMPREPLY+=("$value")
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ghostctl ghostctl
"#;

// zsh and fish quote the offered words themselves, so these scripts must not quote them.
const ZSH: &str = r#"#compdef ghostctl
# Completions of ghostctl for zsh.
_ghostctl() {
    local line
    local -a found
    while IFS= read -r line; do
        if [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            found+=("${line//:/\\:}")
        fi
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe -V 'ghostctl' found
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_ghostctl" ]; then
    _ghostctl "$@"
else
    compdef _ghostctl ghostctl
fi
"#;

const FISH: &str = r#"# Completions of ghostctl for fish.
function __ghostctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] __complete $words[2..-1] "$current" 2>/dev/null
end
complete -c ghostctl -a '(__ghostctl_complete)'
"#;

/// The script for a shell; `None` for an unknown shell.
pub fn script(shell: &str) -> Option<&'static str> {
    match shell {
        "bash" => Some(BASH),
        "zsh" => Some(ZSH),
        "fish" => Some(FISH),
        _ => None,
    }
}

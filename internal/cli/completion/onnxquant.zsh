#compdef onnxquant
# Completion of onnxquant for zsh:  source <(onnxquant completion zsh)

_onnxquant() {
    local line word files=0
    local -a found
    for line in "${(@f)$("${words[1]}" __complete zsh $((CURRENT - 2)) "${(@)words[2,-1]}" 2>/dev/null)}"; do
        word=${line%%$'\t'*}
        if [[ $word == :files ]]; then
            files=1
        elif [[ -n $word ]]; then
            found+=("${word//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#found )) && _describe -V 'onnxquant' found
    (( files )) && _files
}

if [[ $funcstack[1] == _onnxquant ]]; then
    _onnxquant "$@"
else
    compdef _onnxquant onnxquant
fi

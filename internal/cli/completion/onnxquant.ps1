# Completion of onnxquant for PowerShell:  onnxquant completion powershell | Out-String | Invoke-Expression

Register-ArgumentCompleter -Native -CommandName onnxquant -ScriptBlock {
    param($word, $ast, $cursor)
    $before = @($ast.CommandElements | Select-Object -Skip 1 | Where-Object { $_.Extent.EndOffset -lt $cursor } | ForEach-Object { $_.Extent.Text })
    $words = if ($word) { $before + $word } else { $before }
    onnxquant __complete powershell $before.Count @words 2>$null | ForEach-Object {
        $text, $help = $_ -split "`t", 2
        if ($text -eq ':files') {
            [System.Management.Automation.CompletionCompleters]::CompleteFilename($word)
        } else {
            [System.Management.Automation.CompletionResult]::new($text, $text, 'ParameterValue', $(if ($help) { $help } else { $text }))
        }
    }
}

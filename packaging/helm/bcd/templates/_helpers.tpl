{{- define "bcd.name" -}}
{{- ternary .Release.Name (printf "%s-bcd" .Release.Name) (contains "bcd" .Release.Name) | trunc 43 | trimSuffix "-" }}
{{- end }}

{{- define "bcd.selector" -}}
app.kubernetes.io/name: bcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bcd.labels" -}}
{{ include "bcd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* An image, by its digest or its tag. */}}
{{- define "bcd.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end }}
{{- end }}

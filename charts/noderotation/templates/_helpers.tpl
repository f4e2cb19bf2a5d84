{{- define "noderotation.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "noderotation.fullname" -}}
{{- default (include "noderotation.name" .) .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "noderotation.controller" -}}
{{ include "noderotation.fullname" . }}-controller
{{- end }}

{{- define "noderotation.labels" -}}
app.kubernetes.io/name: {{ include "noderotation.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "noderotation.controllerSelector" -}}
app.kubernetes.io/name: {{ include "noderotation.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

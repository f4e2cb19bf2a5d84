{{- define "noderotation.name" -}}
{{- .Values.nameOverride | default (.Chart.Name | kebabcase) | trunc 50 | trimSuffix "-" }}
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
app.kubernetes.io/part-of: noderotation
app.kubernetes.io/version: {{ include "noderotation.labelValue" .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "noderotation.labelValue" (printf "%s-%s" .Chart.Name .Chart.Version) }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of the Pods of one program: root, what selects them, and the program's values. */}}
{{- define "noderotation.podMetadata" -}}
labels:
  {{- .selector | nindent 2 }}
  {{- with merge (dict) .values.podLabels (.root.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Of the Pods of a Job, which a new version of the chart must be able to apply: no label of it changes. */}}
{{- define "noderotation.jobMetadata" -}}
{{- $selector := printf "app.kubernetes.io/name: %s\napp.kubernetes.io/instance: %s\napp.kubernetes.io/component: %s" (include "noderotation.name" .root) .root.Release.Name .component }}
{{- include "noderotation.podMetadata" (dict "root" .root "selector" $selector "values" .root.Values.controller) }}
{{- end }}

{{- /* A probe of a path that the program serves, with what the values say about its times. */}}
{{- define "noderotation.probe" -}}
httpGet: {path: {{ .path }}, port: http}
{{- with .values }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* A version may have a +, and be longer than a label value. */}}
{{- define "noderotation.labelValue" -}}
{{ . | replace "+" "_" | trunc 63 | trimAll "-_." }}
{{- end }}

{{- define "noderotation.controllerAccount" -}}
{{ .Values.controller.serviceAccountName | default (include "noderotation.controller" .) }}
{{- end }}

{{- define "noderotation.webhookAccount" -}}
{{ .Values.webhook.serviceAccountName | default (include "noderotation.webhook" .) }}
{{- end }}

{{- /* An image with its registry, and its digest or else its tag; a tag has no +. */}}
{{- define "noderotation.image" -}}
{{- $registry := .image.registry | default ((.root.Values.global).imageRegistry) }}
{{- $repository := empty $registry | ternary .image.repository (printf "%s/%s" $registry .image.repository) }}
{{- if .image.digest -}}
{{ printf "%s@%s" $repository .image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" $repository (.image.tag | default (.root.Chart.AppVersion | replace "+" "_")) | quote }}
{{- end }}
{{- end }}

{{- /* An image that stands as one text, from global.imageRegistry where that is set: its own registry, if it names one, is left out. */}}
{{- define "noderotation.plainImage" -}}
{{- $registry := (.root.Values.global).imageRegistry }}
{{- $first := splitList "/" .image | first }}
{{- $hasRegistry := and (contains "/" .image) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}
{{- if empty $registry -}}
{{ .image }}
{{- else -}}
{{ printf "%s/%s" $registry ($hasRegistry | ternary (trimPrefix (printf "%s/" $first) .image) .image) }}
{{- end }}
{{- end }}

{{- /* A PriorityClass cannot change its value, so that another value makes another class. */}}
{{- define "noderotation.placeholderClass" -}}
{{ include "noderotation.fullname" . }}-placeholder{{ eq (int .Values.placeholder.priority) -10 | ternary "" (printf "%d" (int .Values.placeholder.priority)) }}
{{- end }}

{{- /* The Secrets of the program and those of all charts; each may be a mere name. */}}
{{- define "noderotation.imagePullSecrets" -}}
{{- $secrets := list }}
{{- range concat (((.root.Values.global).imagePullSecrets) | default list) .secrets }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with $secrets | uniq }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- /* An object of the cleanup after uninstallation, with its weight: none of them stays, whatever becomes of the Job. */}}
{{- define "noderotation.cleanupHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{- define "noderotation.controllerSelector" -}}
app.kubernetes.io/name: {{ include "noderotation.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "noderotation.webhook" -}}
{{ include "noderotation.fullname" . }}-webhook
{{- end }}

{{- define "noderotation.webhookSelector" -}}
app.kubernetes.io/name: {{ include "noderotation.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: webhook
{{- end }}

{{- /* The Secret with the webhook's certificate. */}}
{{- define "noderotation.secret" -}}
{{- if eq .Values.webhook.certificate.mode "secret" -}}
{{ required "webhook.certificate.secretName is required with mode secret" .Values.webhook.certificate.secretName }}
{{- else -}}
{{ include "noderotation.webhook" . }}
{{- end }}
{{- end }}

{{- define "noderotation.controllerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "noderotation.controllerAccount" . }}
{{- end }}

{{- define "noderotation.webhookUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "noderotation.webhookAccount" . }}
{{- end }}

{{- /* The controller by its own token. An impersonated one has no uid, and is an ordinary user. */}}
{{- define "noderotation.isController" -}}
(request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "noderotation.controllerAccount" . }}" && request.userInfo.?uid.orValue("") != "")
{{- end }}

{{- /* Keys open to everyone who may write the object; their values are checked elsewhere. */}}
{{- define "noderotation.openKeys" -}}
"noderotation.io/freeze", "noderotation.io/rotate", "noderotation.io/break-glass"
{{- end }}

{{- /* Karpenter copies a NodeClaim's annotations to its Node: guarded there, these would keep a node from ever joining. */}}
{{- define "noderotation.copiedKeys" -}}
"noderotation.io/state", "noderotation.io/started-at", "noderotation.io/failed-at", "noderotation.io/retry-count", "noderotation.io/surge-claim"
{{- end }}

{{- /* What a NodePool remembers of rotations that are over. A new one, as from a backup, may have it. */}}
{{- define "noderotation.rememberedKeys" -}}
"noderotation.io/last-rotation-at", "noderotation.io/last-failure-at", "noderotation.io/window-opened-at"
{{- end }}

{{- /* This write gives a reason to change guarded keys all the same; one that was there before does not count. */}}
{{- define "noderotation.glassIsBroken" -}}
object.?metadata.?annotations[?"noderotation.io/break-glass"].orValue("").matches("\\S") && object.?metadata.?annotations[?"noderotation.io/break-glass"] != oldObject.?metadata.?annotations[?"noderotation.io/break-glass"]
{{- end }}

{{- /* Something in a policy's spec changes, suspend aside. */}}
{{- define "noderotation.moreThanSuspendChanges" -}}
(object.?spec != oldObject.?spec && (object.?spec.orValue({}).exists(k, k != "suspend" && optional.of(object.spec[k]) != oldObject.?spec[?k]) || oldObject.?spec.orValue({}).exists(k, k != "suspend" && !(k in object.?spec.orValue({})))))
{{- end }}

{{- /* Annotations and labels, new and old. oldObject is null in a creation; these forms bear that. */}}
{{- define "noderotation.pairs" -}}
[[object.?metadata.?annotations.orValue({}), oldObject.?metadata.?annotations.orValue({})], [object.?metadata.?labels.orValue({}), oldObject.?metadata.?labels.orValue({})]]
{{- end }}

{{- /* k is guarded: not among the keys given, and not what a new NodePool remembers. */}}
{{- define "noderotation.guarded" -}}
!(k in [{{ . }}]) && !(request.operation == "CREATE" && request.resource.resource == "nodepools" && k in [{{ include "noderotation.rememberedKeys" . }}])
{{- end }}

{{- /* A map as text, each entry after a comma. An API server takes seconds to walk through a map of 30,000 keys in CEL; to format a
map, and to split that text at our keys, takes milliseconds. Keys are sorted, and the quotes within values escaped, so that a value
full of our prefix is not split. */}}
{{- define "noderotation.mapText" -}}
"%s".format([{{ . }}]).replace("{\"", ", \"")
{{- end }}

{{- /* The keys of ours in a map, and perhaps words that are no key of it. */}}
{{- define "noderotation.ownKeys" -}}
{{ include "noderotation.mapText" . }}.split(", \"noderotation.io/").map(s, "noderotation.io/" + s.split("\"", 2)[0])
{{- end }}

{{- /* Some guarded key is added, changed or removed: ours, and not among the keys given. Most writes change no annotation or
label at all, and are not looked at further. */}}
{{- define "noderotation.guardedKeyChanges" -}}
{{ include "noderotation.pairs" . }}.exists(p, p[0] != p[1] && {{ include "noderotation.ownKeys" "p" }}.exists(k, {{ include "noderotation.guarded" . }} && p[0][?k] != p[1][?k]))
{{- end }}

{{- /* Of a program's values, of its own Pods unless they say otherwise; where none are given, its Pods prefer nodes of their own. */}}
{{- define "noderotation.topologySpread" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (fromYaml .selector)) }}
{{- $preferred := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
{{- $constraints := list }}
{{- range .values.topologySpreadConstraints | default (list $preferred) }}
{{- $constraints = append $constraints (merge (dict) . $own) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}

{{- /* The CA of mode secret, in base64. */}}
{{- define "noderotation.caBundle" -}}
{{- if not (contains "-----BEGIN CERTIFICATE-----" .) }}
{{- fail "webhook.certificate.caBundle: with mode secret, write the CA certificate in PEM, from -----BEGIN CERTIFICATE----- on; what kubectl shows of a Secret is base64 of that" }}
{{- end }}
{{- . | b64enc }}
{{- end }}

{{- define "noderotation.clientConfig" -}}
clientConfig:
  service: {namespace: {{ .root.Release.Namespace }}, name: {{ include "noderotation.webhook" .root }}, port: {{ .root.Values.webhook.service.port }}, path: {{ .path }}}
  {{- if eq .root.Values.webhook.certificate.mode "secret" }}
  caBundle: {{ include "noderotation.caBundle" .root.Values.webhook.certificate.caBundle }}
  {{- end }}
sideEffects: None
admissionReviewVersions: [v1]
matchPolicy: Equivalent
timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
{{- end }}

{{- define "noderotation.guardPolicy" }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels: {{- include "noderotation.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    {{- if .namespaced }}
    namespaceSelector:
      matchLabels: {kubernetes.io/metadata.name: {{ .root.Release.Namespace }}}
    {{- end }}
    resourceRules:
    {{- range .rules }}
    - {{ . }}
    {{- end }}
  matchConditions:
  - name: not-controller
    expression: '!{{ include "noderotation.isController" .root }}'
  - name: not-being-deleted
    expression: '!oldObject.?metadata.?deletionTimestamp.hasValue()'
  variables:
  - name: pairs
    expression: >-
      {{ include "noderotation.pairs" . }}
  - name: written
    expression: >-
      variables.pairs.map(p, p[0] == p[1] ? [] : {{ include "noderotation.ownKeys" "p[0]" }}.filter(k, {{ include "noderotation.guarded" .open }} && k in p[0] && p[0][?k] != p[1][?k]))
  - name: removed
    expression: >-
      variables.pairs.map(p, p[0] == p[1] ? [] : {{ include "noderotation.ownKeys" "p[1]" }}.filter(k, {{ include "noderotation.guarded" .open }} && k in p[1] && !(k in p[0])))
  - name: keys
    expression: variables.written[0] + variables.written[1] + variables.removed[0] + variables.removed[1]
  - name: breakGlass
    expression: >-
      {{ include "noderotation.glassIsBroken" . }} ? string(object.metadata.annotations["noderotation.io/break-glass"]) : ""
  # replacing a NodePool without an active rotation costs one pause between rotations at most
  - name: onlyCleared
    expression: >-
      request.resource.resource == "nodepools" && variables.written[0].size() + variables.written[1].size() == 0 && !("noderotation.io/active-rotation" in variables.pairs[0][1])
  validations:
  - expression: variables.keys.size() == 0 || variables.breakGlass != "" || variables.onlyCleared
    messageExpression: '"metadata: " + variables.keys.join(", ") + ": these keys are the state of a rotation, and only system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "noderotation.controllerAccount" .root }} may change them (you are " + request.userInfo.username + "); leave them as they are, or, to change them all the same, set the annotation noderotation.io/break-glass: \"<reason>\" in the same write"'
    message: noderotation.io keys are the state of a rotation; to change them all the same, set the annotation noderotation.io/break-glass in the same write
    reason: Forbidden
  auditAnnotations:
  - key: break-glass
    valueExpression: 'variables.keys.size() > 0 ? variables.breakGlass : ""'
{{- include "noderotation.denyBinding" . }}
{{- end }}

{{- /* What puts a policy into force. */}}
{{- define "noderotation.denyBinding" }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "noderotation.labels" .root | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
spec: {policyName: {{ .name }}, validationActions: [Deny]}
{{- end }}

{{- define "noderotation.egress" }}
  # the API servers, whose addresses the chart cannot know, and DNS
  egress:
  - ports: [{port: 443}, {port: 6443}]
  - ports: [{port: 53, protocol: UDP}, {port: 53}]
{{- end }}

{{- /* One alert: root, name, expr, summary, description. What the values say of it is under its name without NodeRotation. */}}
{{- define "noderotation.alert" -}}
{{- $rule := .root.Values.prometheusRule }}
{{- $alert := index $rule.alerts .name }}
{{- if $alert.enabled }}
- alert: NodeRotation{{ .name | title }}
  expr: {{ .expr }}
  {{- with $alert.for }}
  for: {{ . }}
  {{- end }}
  labels: {{- toYaml (merge (dict "severity" ($alert.severity | default $rule.severity)) $rule.alertLabels) | nindent 4 }}
  annotations:
    summary: {{ .summary | quote }}
    description: {{ .description | quote }}
    runbook_url: {{ printf "%s#noderotation%s" $rule.runbookUrl (lower .name) | quote }}
{{- end }}
{{- end }}
